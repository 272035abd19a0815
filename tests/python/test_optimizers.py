"""test_optimizers.py - ashlar.torch's optimizers beside PyTorch's: groups, schedules, clipping, scaling,
accumulation; states from here to there and back."""

import copy
import ctypes
import io
import os
import re
import warnings

from cases import SOURCE, case, refusal, run, same, torch
import ashlar.torch
from ashlar.torch import _optimizers
from torch import nn
from training import KINDS, STEPS, TOLERANCE, Recurrent, Rows, alike, backward, compare, pair


@case
def each_kind_trains_like_pytorchs():
    for kind, rows in KINDS.items():
        for options in rows:
            assert compare(Rows(nn.Linear(7, 65), nn.Tanh(), nn.Linear(65, 4)), kind, options), kind


@case
def the_structures_are_those_of_the_headers():
    sizes = {"bool": ctypes.c_bool, "double": ctypes.c_double, "size_t": ctypes.c_size_t,
             "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "unsigned": ctypes.c_uint}
    for header, name, structure in (
            ("arena", "ashlar_tensor_options", _optimizers._TensorOptions),
            ("arena", "ashlar_tensor_spec", _optimizers._TensorSpec),
            ("arena", "ashlar_arena_info", _optimizers._ArenaInfo),
            ("optimizer", "ashlar_optimizer_config", _optimizers._Config),
            ("optimizer", "ashlar_optimizer_call", _optimizers._Call),
            ("optimizer", "ashlar_optimizer_state", _optimizers._State)):
        with open("%s/include/ashlar/%s.h" % (SOURCE, header)) as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        body = re.search(r"struct %s \{(.*?)\n\}" % name, text, re.S)[1]
        wanted = []
        for line in filter(str.strip, body.split(";")):
            kind, names = re.match(r"\s*(?:const )?(\w+)\s+(.*)", line, re.S).groups()
            for field in names.split(","):
                base = ctypes.c_void_p if "*" in field else sizes.get(kind, ctypes.c_int)
                wanted.append((re.search(r"\w+", field)[0], ctypes.sizeof(base), "[" in field))
        got = [(field, ctypes.sizeof(getattr(kind, "_type_", kind)
                                     if issubclass(kind, ctypes.Array) else kind),
                issubclass(kind, ctypes.Array)) for field, kind in structure._fields_]
        assert got == wanted, (name, got, wanted)


@case
def muon_trains_matrices_like_pytorchs():
    if not hasattr(torch.optim, "Muon"):
        return
    for scale in None, "match_rms_adamw":
        module = nn.Sequential(nn.Linear(16, 33, bias=False), nn.Tanh(),
                               nn.Linear(33, 64, bias=False), nn.Linear(64, 8, bias=False))
        arena, other, ours, theirs = pair(module, "Muon", {"adjust_lr_fn": scale, "lr": 1e-3})
        for seed in range(STEPS):
            for m, optimizer in ((module, ours), (other, theirs)):
                m(torch.randn(9, 16, generator=torch.Generator().manual_seed(seed))).square(
                    ).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            # Both round to bf16: at an edge between two of its values the last bit of a product
            # decides, which changes an element by 1/256, and later gradients.
            assert alike(module, other, 2e-4 if seed == 0 else 1e-3), seed
        muon, = theirs.parts
        muon.load_state_dict(ours.state_dict())
        ours.load_state_dict(muon.state_dict())


@case
def muon_leaves_vectors_and_what_it_is_told_to_adamw():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.hidden = nn.Embedding(9, 8), nn.Linear(8, 8)

        def forward(self, seed):
            return self.hidden(self.embedding(torch.arange(9)))
    module = Model()
    other = copy.deepcopy(module)
    arena = ashlar.torch.contiguous(module)
    ours = ashlar.torch.Muon(arena, weight_decay=0.05, params=[
        {"params": [module.hidden.weight]},
        {"params": [module.embedding.weight, module.hidden.bias], "elementwise": True, "lr": 3e-3}])
    theirs = torch.optim.AdamW([other.embedding.weight, other.hidden.bias], lr=3e-3,
                               weight_decay=0.05)
    for seed in range(STEPS):
        for m in module, other:
            backward(m, seed)
        ours.step()
        with torch.no_grad():
            other.hidden.weight.copy_(module.hidden.weight)
        theirs.step()
        ours.zero_grad()
        theirs.zero_grad()
        other.hidden.weight.grad = None
    assert alike(module, other)
    assert [set(state) for state in ours.state_dict()["state"].values()] == [
        {"momentum_buffer"}] + 2 * [{"step", "exp_avg", "exp_avg_sq"}]


@case
def groups_schedules_and_accumulation_work_as_in_pytorch():
    def groups(module):
        decayed = [p for p in module.parameters() if p.dim() > 1]
        return [{"params": decayed[:1], "weight_decay": 0.2}, {"params": decayed[1:], "lr": 3e-3},
                {"params": [p for p in module.parameters() if p.dim() < 2], "weight_decay": 0.0,
                 "lr": 0.0 if module.training else 1}]

    def schedule(number, optimizer):
        if number == 0:
            return torch.optim.lr_scheduler.OneCycleLR(optimizer, [1e-2, 2e-2, 1e-3], total_steps=20)
        if number == 1:
            return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)

    for number in range(3):
        module = Recurrent(nn.LSTM, num_layers=2)
        other = copy.deepcopy(module)
        arena = ashlar.torch.contiguous(module)
        ours = ashlar.torch.AdamW(arena, 1e-2, params=groups(module), weight_decay=0.1)
        theirs = torch.optim.AdamW(groups(other), 1e-2, weight_decay=0.1)
        runs = [(m, o, schedule(number, o)) for m, o in ((module, ours), (other, theirs))]
        for seed in range(STEPS):
            for m, optimizer, scheduler in runs:
                backward(m, seed)
                backward(m, seed + 100)
                if m is other:
                    for p in m.parameters():
                        p.grad.mul_(0.5)
                optimizer.step(**({"gradient_scale": 0.5} if m is module else {}))
                optimizer.zero_grad()
                scheduler.step(*([1.0] if number == 2 else []))
        assert alike(module, other), number
        assert [g["lr"] for g in ours.param_groups] == [g["lr"] for g in theirs.param_groups]


@case
def states_go_from_here_to_pytorch_and_back():
    def steps(count, *runs):
        for seed in range(count):
            for m, optimizer in runs:
                backward(m, seed)
                optimizer.step()
                optimizer.zero_grad()

    for kind, rows in KINDS.items():
        for options in rows:
            for direction in "to_pytorch", "from_pytorch", "here":
                module = Recurrent(nn.GRU)
                _, other, ours, theirs = pair(module, kind, options)
                runs = [(module, ours), (other, theirs)]
                (trained, first), (unlike, second) = (
                    runs[::-1] if direction == "from_pytorch" else runs)
                steps(4, (trained, first))
                count = len(first.state)  # without one, tools would have a step made
                assert bool(count) == (kind != "SGD" or options.get("momentum", 0) > 0)
                file = io.BytesIO()
                torch.save([trained.state_dict(), first.state_dict()], file)
                file.seek(0)
                weights, state = torch.load(file)
                if direction == "here":  # also into an optimizer that has done something else
                    steps(1, (module, ours))
                for m, optimizer in runs if direction == "here" else [(unlike, second)]:
                    m.load_state_dict(weights)
                    optimizer.load_state_dict(state)
                    assert len(optimizer.state) == count
                steps(4, *runs)
                assert alike(module, other), (kind, options, direction)
                assert set(ours.state_dict()["param_groups"][0]) == set(
                    theirs.state_dict()["param_groups"][0])


@case
def states_are_in_the_modules_order_which_is_not_the_arenas():
    class Mixed(Rows):
        def forward(self, seed):
            first, wide, last = self.layers
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
            return last(wide(first(x).double()).float()[None])[0]
    module = Mixed(nn.Linear(4, 4), nn.Linear(4, 4).double(), nn.LSTM(4, 4, 2))
    module.register_parameter("empty", nn.Parameter(torch.zeros(0)))
    other = copy.deepcopy(module)
    ours = ashlar.torch.AdamW(ashlar.torch.contiguous(module), lr=1e-2)
    theirs = torch.optim.AdamW(other.parameters(), lr=1e-2)
    for seed in range(6):
        for m, optimizer in ((module, ours), (other, theirs)):
            module.empty.grad = other.empty.grad = None
            m(seed).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        state = (ours, theirs)[seed % 2].state_dict()
        (theirs, ours)[seed % 2].load_state_dict(copy.deepcopy(state))
    assert alike(module, other)


@case
def a_loss_scale_divides_gradients_and_steps_that_overflow_are_skipped():
    module = Rows(nn.Linear(7, 6), nn.Linear(6, 4))
    arena, other, ours, theirs = pair(module, "AdamW", {"lr": 1e-2}, loss_scale=1024.0)
    for seed in range(STEPS):
        before = copy.deepcopy(module.state_dict())
        ours.scale(module(seed).square().mean()).backward()
        if seed == 7:
            module.layers[0].weight.grad[0, 0] = float("inf")
        ours.step()
        ours.zero_grad()
        if seed == 7:
            assert ours.last_step().is_skipped and ours.last_step().loss_scale == 512
            assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
            continue
        other(seed).square().mean().backward()
        theirs.step()
        theirs.zero_grad()
    assert alike(module, other) and ours.last_step()[:2] == (STEPS - 1, 1)
    again = ashlar.torch.AdamW(arena, lr=1e-2, loss_scale=4.0)
    again.load_state_dict(ours.state_dict())
    assert again.last_step()[:2] == (STEPS - 1, 1) and again.last_step().loss_scale == 512


@case
def pytorchs_grad_scaler_works():
    module = Rows(nn.Linear(7, 6), nn.Linear(6, 4))
    arena, other, ours, theirs = pair(module, "Adam", {"lr": 1e-2})
    scalers = [torch.amp.GradScaler("cpu", init_scale=256.0) for _ in range(2)]
    ours = ashlar.torch.Adam(arena, 1e-2, fused=True)  # of which PyTorch's divides by the scale
    for seed in range(STEPS):
        for m, optimizer, scaler in ((module, ours, scalers[0]), (other, theirs, scalers[1])):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=seed % 2 == 1):
                loss = m(seed).square().mean()
            scaler.scale(loss).backward()
            if seed == 5:
                m.layers[1].bias.grad[0] = float("nan")
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    arena.check()
    assert alike(module, other, 1e-5) and scalers[0].get_scale() == scalers[1].get_scale() == 128


@case
def bf16_parameters_have_masters_which_follow_what_is_loaded():
    module = Rows(nn.Linear(7, 6), nn.Linear(6, 4)).bfloat16()
    module.forward = lambda seed: module.layers(torch.randn(
        4, 7, generator=torch.Generator().manual_seed(seed)).bfloat16())
    wide = copy.deepcopy(module.layers).float()
    arena = ashlar.torch.contiguous(module)
    ours, theirs = ashlar.torch.AdamW(arena, lr=1e-4), torch.optim.AdamW(wide.parameters(), lr=1e-4)
    for seed in range(STEPS):  # so small a rate that bf16 alone would stand still
        if seed == 10:
            with torch.no_grad():
                for p, q in zip(module.parameters(), wide.parameters()):
                    p.fill_(0.5)
                    q.fill_(0.5)
        module(seed).float().square().mean().backward()
        for p, q in zip(module.parameters(), wide.parameters()):
            q.grad = p.grad.float()
        ours.step()
        theirs.step()
        assert all(torch.equal(p, q.bfloat16()) for p, q in zip(module.parameters(),
                                                                wide.parameters())), seed
        ours.zero_grad()
    for p in module.parameters():
        p.data.fill_(0.25)  # which autograd does not count
    arena.changed()
    for q in wide.parameters():
        q.data.fill_(0.25)
        q.grad.zero_()
    theirs.step()
    ours.step()
    state = ours.state_dict()["state"]
    assert all(same(state[i]["master"], q, 1e-6) for i, q in enumerate(wide.parameters()))
    again = ashlar.torch.AdamW(arena, lr=1e-4)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert torch.equal(again.state_dict()["state"][0]["master"], state[0]["master"])


@case
def a_parameter_without_a_gradient_misses_the_step_as_in_pytorch():
    module = Rows(nn.Linear(7, 6), nn.Linear(6, 4))
    arena, other, ours, theirs = pair(module, "AdamW", {"lr": 1e-2})
    for seed in range(STEPS):
        for m, optimizer in ((module, ours), (other, theirs)):
            m.zero_grad()
            for p in m.layers[0].parameters():
                p.requires_grad_(seed % 3 != 1)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                backward(m, seed)
                optimizer.step()
            assert ["module.zero_grad()" in str(t.message) for t in told] == [True] * (m is module)
    assert alike(module, other)
    steps = [state["step"].item() for state in ours.state_dict()["state"].values()]
    assert steps == [state["step"].item() for state in theirs.state_dict()["state"].values()]


@case
def two_optimizers_share_an_arena():
    module = Rows(nn.Linear(7, 6), nn.Linear(6, 4))
    other = copy.deepcopy(module)
    arena = ashlar.torch.contiguous(module)
    ours = [ashlar.torch.SGD(arena, 0.1, params=module.layers[i].parameters()) for i in range(2)]
    theirs = torch.optim.SGD(other.parameters(), 0.1)
    for seed in range(5):
        for m, optimizers in ((module, ours), (other, [theirs])):
            backward(m, seed)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert alike(module, other)
    arena.check()


@case
def steps_run_on_pytorchs_threads():
    module = nn.Linear(1024, 1024)
    optimizer = ashlar.torch.AdamW(ashlar.torch.contiguous(module))
    torch.set_num_threads(3)
    module(torch.ones(256, 1024)).square().mean().backward()
    before = os.listdir("/proc/self/task")
    optimizer.step()
    after = os.listdir("/proc/self/task")
    torch.set_num_threads(1)
    assert after == before


@case
def options_may_be_in_pytorchs_order_and_classes_derived():
    class Mine(ashlar.torch.SGD):
        pass
    module = Rows(nn.Linear(7, 6))
    other = copy.deepcopy(module)
    ours = Mine(ashlar.torch.contiguous(module), 0.1, 0.9, clip_norm=None)
    theirs = torch.optim.SGD(other.parameters(), 0.1, 0.9)
    for seed in range(3):
        for m, optimizer in ((module, ours), (other, theirs)):
            optimizer.zero_grad()
            backward(m, seed)
            optimizer.step()
    assert alike(module, other)


@case
def integers_lie_in_the_arena_and_are_left_alone():
    module = Rows(nn.Linear(7, 6))
    module.table = nn.Parameter(torch.arange(7, dtype=torch.uint8), requires_grad=False)
    module.ranks = nn.Parameter(torch.arange(6).view(2, 3), requires_grad=False)
    assert compare(module, "AdamW", {"lr": 1e-2})
    assert module.table.tolist() == list(range(7)) and module.ranks.sum() == 15


@case
def a_child_of_fork_is_told_to_start_earlier():
    module = Rows(nn.Linear(7, 6))
    optimizer = ashlar.torch.SGD(ashlar.torch.contiguous(module), 0.1)
    child = os.fork()
    if child == 0:
        line = refusal(RuntimeError, optimizer.step)
        os._exit(7 if "call fork() before a device" in line else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@case
def closures_hooks_and_zeroing_steps():
    module, seen = Rows(nn.Linear(7, 6)), []
    optimizer = ashlar.torch.SGD(ashlar.torch.contiguous(module), 0.1, zero_gradients=True)
    optimizer.register_step_pre_hook(lambda *given: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *given: seen.append("post"))
    loss = optimizer.step(lambda: backward(module, 1))
    assert loss > 0 and seen == ["pre", "post"]
    assert not any(p.grad.any() for p in module.parameters())
    weight = module.layers[0].weight
    squares = weight * weight
    optimizer.step()
    assert "modified by an inplace operation" in refusal(RuntimeError, squares.sum().backward)


@case
def what_is_not_done_is_refused_by_a_line():
    module = Rows(nn.Linear(7, 6))
    arena, adam = ashlar.torch.contiguous(module), ashlar.torch.AdamW
    a, b = module.parameters()
    for options, said in (
            ({"amsgrad": True}, "amsgrad is not done here"), ({"maximize": True}, "maximize"),
            ({"params": [{"params": [a]}, {"params": [b], "eps": 1e-3}]}, "but not in epsilon"),
            ({"params": [nn.Parameter(torch.zeros(2))]}, "is not the arena's"),
            ({"eps": 0.0}, "epsilon"), ({"clip_norm": -1.0}, "clip_norm"), ({"lr": -1.0}, "lr")):
        line = refusal((ValueError, RuntimeError), adam, arena, **options)
        assert said in line or "learning rate" in line, line
    assert "not a Rows" in refusal(TypeError, adam, module)
    optimizer = adam(arena)
    for other, kind, said in ((nn.Linear(1, 1), torch.optim.AdamW, "of shape (6, 7)"),
                              (nn.Linear(7, 6), torch.optim.RMSprop, "no exp_avg of layers.0.weight")):
        theirs = kind(other.parameters())
        other(torch.ones(1, other.in_features)).sum().backward()
        theirs.step()
        assert said in refusal(ValueError, optimizer.load_state_dict, theirs.state_dict())
    assert "state_dict" in refusal(TypeError, copy.deepcopy, optimizer)
    module.layers[0].bfloat16()
    assert "contiguous(module)" in refusal(ashlar.torch.Moved, optimizer.step)
    other = nn.Linear(2, 2).to(torch.complex64)
    assert "complex64" in refusal(ValueError, adam, ashlar.torch.contiguous(other))


run()
