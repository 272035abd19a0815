"""_optimizers - PyTorch's optimizers over an arena: one pass of libashlar's, with clipping in it."""

import collections
import ctypes
import math
import warnings
import weakref

import torch

from .._library import device_and_allocator, function
from ._contiguous import ALIGN, new_range

# ---- libashlar's structures and functions: include/ashlar/arena.h, optimizer.h ----

PARAMETERS, GRADIENTS, MOMENT1, MOMENT2, MASTER, REGIONS = range(6)
KINDS = ("SGD", "ADAM", "ADAMW", "ADAGRAD", "RMSPROP", "MUON")
MUON_SCALES = (None, "match_rms_adamw", "spectral_unclamped")  # adjust_lr_fn
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
RANK_MAX = 4
ALWAYS = 2 ** 64 - 1  # ASHLAR_UPDATED_ALWAYS
_double, _size, _u32, _u64, _pointer = (ctypes.c_double, ctypes.c_size_t, ctypes.c_uint32,
                                        ctypes.c_uint64, ctypes.c_void_p)


class _TensorOptions(ctypes.Structure):
    _fields_ = [("is_frozen", ctypes.c_bool), ("has_no_decay", ctypes.c_bool),
                ("is_elementwise", ctypes.c_bool), ("rate_scale", _double), ("decay_scale", _double)]


class _TensorSpec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", _size),
                ("shape", _size * RANK_MAX), ("group_offset", _size)]


class _ArenaInfo(ctypes.Structure):
    _fields_ = [("tensor_count", _size), ("elements", _size), ("regions", ctypes.c_uint),
                ("allocator", _pointer), ("bucket_count", _size), ("region_bytes", _size * REGIONS)]


class _Config(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("is_complete", ctypes.c_bool), ("learning_rate", _double),
                ("momentum", _double), ("dampening", _double), ("nesterov", ctypes.c_bool),
                ("beta1", _double), ("beta2", _double), ("smoothing", _double),
                ("rate_decay", _double), ("epsilon", _double), ("weight_decay", _double),
                ("clip_norm", _double), ("ns", _double * 3), ("ns_steps", _u32),
                ("ns_epsilon", _double), ("muon_scale", ctypes.c_int),
                ("loss_scale", _double), ("scale_interval", _u32),
                ("scale_growth", _double), ("scale_backoff", _double)]


class _Call(ctypes.Structure):
    _fields_ = [("parts", ctypes.c_uint), ("learning_rate", _double), ("rate_at", _pointer),
                ("gradient_scale", _double), ("zero_gradients", ctypes.c_bool), ("offset", _size),
                ("bytes", _size)]


class _State(ctypes.Structure):
    _fields_ = [("step", _u64), ("skipped", _u64), ("norm", _double), ("loss_scale", _double),
                ("good_steps", _u32), ("is_skipped", _u32)]


_arena_create = function("ashlar_arena_create", _pointer)
_arena_add_group = function("ashlar_arena_add_group", _pointer, _size, _pointer, _size, _pointer)
_arena_lend = function("ashlar_arena_lend", _pointer, ctypes.c_int, _pointer, _size)
_arena_commit = function("ashlar_arena_commit", _pointer, _pointer, _pointer, ctypes.c_uint)
_arena_info = function("ashlar_arena_get_info", _pointer, result=_ArenaInfo)
_arena_view = function("ashlar_arena_view", _pointer, ctypes.c_int, _size, result=_pointer)
_arena_options = function("ashlar_arena_set_options", _pointer, _size, _pointer)
_arena_destroy = function("ashlar_arena_destroy", _pointer, result=None)
_create = function("ashlar_optimizer_create", _pointer, _pointer, _pointer, _pointer)
_destroy = function("ashlar_optimizer_destroy", _pointer, result=None)
_step = function("ashlar_optimizer_step_with", _pointer, _pointer, _pointer)
_get_state = function("ashlar_optimizer_copy_state_to_host", _pointer, _pointer, _pointer, _pointer)
_put_state = function("ashlar_optimizer_copy_state_to_device", _pointer, _pointer, _pointer,
                      _pointer)
_synchronize = function("ashlar_stream_synchronize", _pointer, _pointer)


class _Native:
    """libashlar's arena on the memory of a Python one, and an optimizer of it."""

    def __init__(self, arena):
        self.device, allocator = device_and_allocator(
            "soft:0" if arena.values.device.type == "cpu" else str(arena.values.device))
        self.on_cuda, self.count = arena.values.device.type == "cuda", len(arena.places)
        self.arena, self.optimizer, self.memory = _pointer(), _pointer(), {}
        _arena_create(ctypes.byref(self.arena))
        weakref.finalize(self, _arena_destroy, self.arena)
        for group in arena.groups:
            specs = (_TensorSpec * len(group.places))(*map(self._spec, group.places))
            _arena_add_group(self.arena, group.bytes, specs, len(specs), None)
        self._lend(PARAMETERS, arena.values)
        self._lend(GRADIENTS, arena.gradients)
        _arena_commit(self.arena, allocator, self.stream(), 1 << PARAMETERS | 1 << GRADIENTS)
        assert all(_arena_view(self.arena, PARAMETERS, i) == place.value.data_ptr()
                   for i, place in enumerate(arena.places))

    @staticmethod
    def _spec(place):
        p = place.parameter
        if p.dtype not in DTYPES:
            raise ValueError("optimizer: parameter %s is %s; it updates float32, float64, float16 and "
                             "bfloat16" % (place.name, p.dtype))
        shape = tuple(p.shape) if p.dim() == 2 and p.is_contiguous() else (p.numel(),)
        return _TensorSpec(place.name.encode(), DTYPES[p.dtype], len(shape),
                           (_size * RANK_MAX)(*shape), place.offset)

    def _lend(self, region, memory):
        self.memory[region] = memory
        _arena_lend(self.arena, region, memory.data_ptr(), memory.numel())

    def stream(self):
        return _pointer(torch.cuda.current_stream(self.memory[PARAMETERS].device).cuda_stream
                        if self.on_cuda else None)

    def open(self, config, regions):
        """Make the optimizer, in the place of an earlier one, whose state it takes over."""
        sizes = _arena_info(self.arena).region_bytes
        for region in {*regions, MASTER} - set(self.memory):
            if sizes[region]:
                self._lend(region, new_range(sizes[region], self.memory[PARAMETERS].device))
        state = self.state() if self.optimizer else None
        made = _pointer()
        _create(self.arena, ctypes.byref(config), self.stream(), ctypes.byref(made))
        if state:
            self.finalizer()
        self.optimizer, self.finalizer = made, weakref.finalize(self, _destroy, made)
        if state:
            self.put_state(*state)

    def state(self):
        """_State, and how often each tensor was updated."""
        state, updates = _State(), (_u64 * self.count)()
        _get_state(self.optimizer, ctypes.byref(state), updates, self.stream())
        self.wait()
        return state, [state.step if n == ALWAYS else n for n in updates]

    def put_state(self, state, updates):
        listed = (_u64 * self.count)(*(ALWAYS if n == state.step else n for n in updates))
        _put_state(self.optimizer, ctypes.byref(state), listed, self.stream())

    def wait(self):
        _synchronize(self.device, self.stream())

    def view(self, region, i, place):
        """The tensor `i` of a region of moments or masters; None: there is none."""
        address = _arena_view(self.arena, region, i)
        if address is None:
            return None
        dtype = torch.float64 if place.value.dtype == torch.float64 else torch.float32
        memory = self.memory[region]
        begin = address - memory.data_ptr()
        flat = memory[begin:begin + place.value.numel() * dtype.itemsize].view(dtype)
        return flat.as_strided(place.value.shape, place.stride)


LastStep = collections.namedtuple("LastStep", [name for name, _ in _State._fields_])


class _Pass:
    """Before a class of torch.optim: step() is one pass of libashlar's over the arena.

        optimizer(arena, lr, params=None, clip_norm=0, loss_scale=0, zero_gradients=False, ...)

    params      parameters or groups of the arena's; None: all
    clip_norm   the gradients' 2-norm is scaled down to this, as by clip_grad_norm_(); 0: it is not
    loss_scale  multiply the loss by scale(loss): steps then divide gradients by the scale, which
                grows and shrinks as GradScaler's does, from this on; 0: none. GradScaler works, too
    zero_gradients   step() leaves gradients that are 0, so that no zero_grad() is needed

    Groups may differ in lr and weight_decay. A step with a gradient that is not finite is skipped.
    """

    refused = "maximize", "capturable", "differentiable"  # what a group must not ask for

    def __init__(self, arena, lr=None, *, params=None, clip_norm=0.0, loss_scale=0.0,
                 zero_gradients=False, **options):
        self._arena, self._clip_norm, self._loss_scale = arena, clip_norm, loss_scale
        self._zero_gradients = zero_gradients
        self._index = {id(place.parameter): i for i, place in enumerate(arena.places)}
        self._versions, self._set, self._config, self._followed = {}, {}, None, None
        arena.check(mend=True)
        self._narrow = [i for i, place in enumerate(arena.places)
                        if place.value.dtype in (torch.float16, torch.bfloat16)]
        self._native = _Native(arena)
        options.update({} if lr is None else {"lr": lr})
        super().__init__([place.parameter for place in arena.places] if params is None else params,
                         **options)
        self._follow()

    def __getstate__(self):
        raise TypeError("an optimizer of an arena is not copied or saved; use its state_dict()")

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if id(p) not in self._index and p.numel():
                self.param_groups.pop()
                raise ValueError("%s: a parameter of shape %s is not the arena's" % (
                    type(self).__name__, tuple(p.shape)))

    # ---- groups, as options of tensors ----

    def _kind(self):
        return type(self).__name__.upper()

    def _common(self, group):
        """The fields of a _Config that all groups have to share."""
        raise NotImplementedError

    def _names(self, place):
        """PyTorch's names of a parameter's state, each with its region: "step" has none, and a region
        without a name is libashlar's own."""
        raise NotImplementedError

    def _check_groups(self):
        first = self._common(self.param_groups[0])
        for group in self.param_groups:
            asked = [key for key in self.refused if group.get(key)]
            if asked:
                raise ValueError("%s: %s is not done here; use torch.optim.%s over arena.flat()" % (
                    type(self).__name__, asked[0], type(self).__name__))
            differing = [key for key, value in self._common(group).items() if value != first[key]]
            if differing:
                raise ValueError("%s: groups may differ in lr and weight_decay, but not in %s" % (
                    type(self).__name__, differing[0]))
        return first

    def _follow(self):
        """Make the groups' present values libashlar's; returns the rate that its scales refer to."""
        common = self._check_groups()
        rates, decays = ([float(group[key]) for group in self.param_groups]
                         for key in ("lr", "weight_decay"))
        frozen = [not place.parameter.requires_grad or place.parameter.grad is None
                  for place in self._arena.places]
        rate, decay = max(rates), max(decays)
        if self._followed == (rates, decays, frozen, common):
            return rate
        options = {}
        for group, its_rate, its_decay in zip(self.param_groups, rates, decays):
            # A scale of 0 would stand for 1; this one leaves no rate in any type.
            scales = ((its_rate / rate if rate else 1) or 1e-300, its_decay / decay if decay else 1)
            for p in filter(torch.numel, group["params"]):
                i = self._index[id(p)]
                options[i] = (frozen[i], not its_decay, group.get("elementwise", False)) + scales
        for i in range(len(self._arena.places)):
            wanted, had = options.get(i, (True, False, False, 1, 1)), self._set.get(i)
            if had is None or wanted[:3] != had[:3] or not all(map(math.isclose, wanted[3:],
                                                                   had[3:])):
                _arena_options(self._native.arena, i, ctypes.byref(_TensorOptions(*wanted)))
                self._set[i] = wanted
        config = dict(common, weight_decay=decay, clip_norm=self._clip_norm,
                      loss_scale=self._loss_scale)
        if config != self._config:
            regions = {region for _, place in self._places()
                       for region in self._names(place).values() if region is not None}
            self._native.open(_Config(
                KINDS.index(self._kind()), True, learning_rate=1, scale_interval=2000,
                scale_growth=2, scale_backoff=0.5, **config), regions)
            self._config = config
        self._followed = rates, decays, frozen, common
        return rate

    # ---- steps ----

    def _mend(self):
        """Gradients that back-propagation made elsewhere come back; masters follow parameters."""
        moved = [place for place in self._arena.places if not place.lies_here() or (
            place.parameter.grad is not None and place.parameter.grad is not place.gradient)]
        if moved:
            self._arena.check_fits()
            warnings.warn("ashlar: %d parameters or gradients of the arena lay elsewhere and were "
                          "copied, that of %s first: call optimizer.zero_grad(), not module."
                          "zero_grad()" % (len(moved), moved[0].name), stacklevel=3)
            for place in moved:
                self._arena.put(place)
        for i in self._narrow:
            place = self._arena.places[i]
            if self._versions.get(i) != place.parameter._version:
                self._native.view(MASTER, i, place).copy_(place.parameter)

    @torch.no_grad()
    def step(self, closure=None, *, gradient_scale=1.0):
        """One step. gradient_scale multiplies the gradients: 1 / micro-batches after accumulation."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._mend()
        native, rate = self._native, self._follow()
        zeroes = self._zero_gradients and self._has_all()
        _step(native.optimizer, ctypes.byref(_Call(
            learning_rate=rate, gradient_scale=gradient_scale, zero_gradients=zeroes)),
            native.stream())
        if not native.on_cuda:
            native.wait()
        if zeroes:
            self._arena.put_back()
        elif self._zero_gradients:
            self.zero_grad()
        self._arena.changed()
        self._note_versions()
        return loss

    def _note_versions(self):
        self._versions = {i: self._arena.places[i].parameter._version for i in self._narrow}

    def zero_grad(self, set_to_none=False):
        """Fill the gradients with zeros, in one pass; they are never set to None."""
        self._arena.zero_grad(None if self._has_all() else [place for _, place in self._places()])

    def _has_all(self):
        return len(list(self._places())) == len(self._arena.places)

    def scale(self, loss):
        """The loss, multiplied by the loss scale: what to call backward() on."""
        return loss * self.last_step().loss_scale

    def last_step(self):
        """Steps done and skipped, the gradients' norm before clipping, the loss scale for the next
        step, good steps since it changed, whether the last step was skipped. Waits for it."""
        state = self._native.state()[0]
        return LastStep(*(getattr(state, name) for name in LastStep._fields))

    # ---- state in PyTorch's shape ----

    def _places(self):
        for group in self.param_groups:
            for p in filter(torch.numel, group["params"]):
                yield self._index[id(p)], self._arena.places[self._index[id(p)]]

    def _views(self, i, place):
        """The tensors of a parameter's state, by PyTorch's names."""
        named = {name: self._native.view(region, i, place)
                 for name, region in self._names(place).items() if name and region is not None}
        named["master"] = self._native.view(MASTER, i, place)
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def state_dict(self):
        state, updates = self._native.state()
        for i, place in self._places():
            if updates[i] and self._names(place):
                self.state[place.parameter] = self._views(i, place)
                if "step" in self._names(place):
                    self.state[place.parameter]["step"] = torch.tensor(float(updates[i]))
        saved = super().state_dict()
        saved["ashlar"] = {name: getattr(state, name) for name in ("step", "skipped", "loss_scale",
                                                                  "good_steps")}
        return saved

    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """Take over the state of an optimizer of this class, or of PyTorch's of that name."""
        super().load_state_dict(dict(state_dict, state={}, param_groups=[
            {**self.defaults, **group} for group in state_dict["param_groups"]]))
        self._follow()
        extra = state_dict.get("ashlar", {})
        updates, numbers = [0] * len(self._arena.places), (
            k for group in state_dict["param_groups"] for k in group["params"])
        parameters = (p for group in self.param_groups for p in group["params"])
        for number, p in zip(numbers, parameters):
            saved = state_dict["state"].get(number)
            if not saved or not p.numel():
                continue
            i = self._index[id(p)]
            place = self._arena.places[i]
            for name, tensor in self._views(i, place).items():
                given = saved.get(name, place.parameter if name == "master" else None)
                tensor.copy_(given) if given is not None else tensor.zero_()
            updates[i] = int(saved.get("step", max(1, extra.get("step", 1))))
        state = _State(step=max(updates + [extra.get("step", 0)]), skipped=extra.get("skipped", 0),
                       loss_scale=extra.get("loss_scale", 0), good_steps=extra.get("good_steps", 0))
        self._native.put_state(state, updates)
        self._note_versions()


class _Adam(_Pass):
    refused = _Pass.refused + ("amsgrad",)

    def _kind(self):
        is_decoupled = self.param_groups[0].get("decoupled_weight_decay",
                                                isinstance(self, torch.optim.AdamW))
        return "ADAMW" if is_decoupled else "ADAM"

    def _common(self, group):
        beta1, beta2 = map(float, group["betas"])
        return {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"]}

    def _names(self, place):
        return {"step": None, "exp_avg": MOMENT1, "exp_avg_sq": MOMENT2}


class Adam(_Adam, torch.optim.Adam):
    __doc__ = _Pass.__doc__


class AdamW(_Adam, torch.optim.AdamW):
    __doc__ = _Pass.__doc__


class SGD(_Pass, torch.optim.SGD):
    __doc__ = _Pass.__doc__

    def _common(self, group):
        return {key: group[key] for key in ("momentum", "dampening", "nesterov")}

    def _names(self, place):
        return {"momentum_buffer": MOMENT1} if self.param_groups[0]["momentum"] else {}


class Adagrad(_Pass, torch.optim.Adagrad):
    __doc__ = _Pass.__doc__

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.state.clear()
        for i, place in self._places():
            self._views(i, place)["sum"].fill_(self.defaults["initial_accumulator_value"])

    def _common(self, group):
        return {"rate_decay": group["lr_decay"], "epsilon": group["eps"]}

    def _names(self, place):
        return {"step": None, "sum": MOMENT2}


class RMSprop(_Pass, torch.optim.RMSprop):
    __doc__ = _Pass.__doc__
    refused = _Pass.refused + ("centered",)

    def _common(self, group):
        return {"smoothing": group["alpha"], "epsilon": group["eps"], "momentum": group["momentum"]}

    def _names(self, place):
        momentum = {"momentum_buffer": MOMENT1} if self.param_groups[0]["momentum"] else {}
        return {"step": None, "square_avg": MOMENT2, **momentum}


class _MuonGroups(torch.optim.Optimizer):
    """The groups of torch.optim.Muon, which earlier versions of PyTorch do not have."""

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True,
                 ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7, ns_steps=5, adjust_lr_fn=None,
                 betas=(0.9, 0.999), adamw_eps=1e-8, elementwise=False):
        super().__init__(params, dict(
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
            ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn,
            betas=betas, adamw_eps=adamw_eps, elementwise=elementwise))


class Muon(_Pass, _MuonGroups):
    __doc__ = _Pass.__doc__ + """
    Muon updates matrices. What has another rank, and groups with elementwise=True, for embeddings and
    output layers, are updated as by AdamW, with betas and adamw_eps.
    """

    def _common(self, group):
        scale = group["adjust_lr_fn"]
        if scale not in MUON_SCALES + ("original",):
            raise ValueError("Muon: adjust_lr_fn %r; give original or match_rms_adamw" % scale)
        return {"momentum": group["momentum"], "nesterov": group["nesterov"],
                "ns": tuple(group["ns_coefficients"]), "ns_epsilon": group["eps"],
                "ns_steps": group["ns_steps"],
                "muon_scale": 0 if scale == "original" else MUON_SCALES.index(scale),
                "beta1": group["betas"][0], "beta2": group["betas"][1],
                "epsilon": group["adamw_eps"]}

    def _names(self, place):
        elementwise = any(group["elementwise"] and any(p is place.parameter for p in group["params"])
                          for group in self.param_groups)
        if place.parameter.dim() == 2 and not elementwise:
            return {"momentum_buffer": MOMENT1, "": MOMENT2}
        return {"step": None, "exp_avg": MOMENT1, "exp_avg_sq": MOMENT2}
