"""_optimizers - PyTorch's optimizers over an arena: a pass of libashlar's, with clipping in it."""

import collections
import ctypes
import warnings
import weakref
from ctypes import byref

import torch

from .._library import device_and_allocator, function, lend_threads, structure
from ._contiguous import Arena, new_range

# ---- libashlar's constants, structures and functions: include/ashlar/arena.h, optimizer.h ----

PARAMETERS, GRADIENTS, MOMENT1, MOMENT2, MASTER = range(5)
KINDS = ("SGD", "ADAM", "ADAMW", "ADAGRAD", "RMSPROP", "MUON")
MUON_SCALES = ("original", "match_rms_adamw", "spectral_unclamped")  # adjust_lr_fn
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
REFUSED = "maximize", "capturable", "differentiable", "amsgrad", "centered"
ALWAYS = 2 ** 64 - 1  # ASHLAR_UPDATED_ALWAYS
_pointer, _size = ctypes.c_void_p, ctypes.c_size_t

_TensorOptions = structure("bool is_frozen has_no_decay is_elementwise;"
                           "double rate_scale decay_scale")
_TensorSpec = structure("string name; int dtype; size rank shape[4] group_offset")
_ArenaInfo = structure("size tensor_count elements; unsigned regions; pointer allocator;"
                       "size bucket_count region_bytes[6]")
_Config = structure(
    "int kind; bool is_complete; double learning_rate momentum dampening; bool nesterov;"
    "double beta1 beta2 smoothing rate_decay epsilon weight_decay clip_norm; bool state_on_host;"
    "double ns[3]; u32 ns_steps; double ns_epsilon; int muon_scale; double loss_scale;"
    "u32 scale_interval; double scale_growth scale_backoff")
_Call = structure("unsigned parts; double learning_rate; pointer rate_at; double gradient_scale;"
                  "bool zero_gradients; size offset bytes")
_State = structure("u64 step skipped; double norm loss_scale; u32 good_steps is_skipped")
LastStep = collections.namedtuple("LastStep", [name for name, _ in _State._fields_])

_arena_create = function("arena_create", "pointer")
_arena_add_group = function("arena_add_group", "pointer size pointer size pointer")
_arena_lend = function("arena_lend", "pointer int pointer size")
_arena_commit = function("arena_commit", "pointer pointer pointer unsigned")
_arena_info = function("arena_get_info", "pointer", _ArenaInfo)
_arena_view = function("arena_view", "pointer int size", "pointer")
_arena_options = function("arena_set_options", "pointer size pointer")
_arena_destroy = function("arena_destroy", "pointer", "void")
_create = function("optimizer_create", "pointer pointer pointer pointer")
_destroy = function("optimizer_destroy", "pointer", "void")
_step = function("optimizer_step_with", "pointer pointer pointer")
_get_state = function("optimizer_copy_state_to_host", "pointer pointer pointer pointer")
_put_state = function("optimizer_copy_state_to_device", "pointer pointer pointer pointer")
_synchronize = function("stream_synchronize", "pointer pointer")


class _Native:
    """libashlar's arena on the memory of a Python one, and an optimizer of it."""

    def __init__(self, arena):
        where = arena.values.device
        self.on_cuda, self.places = where.type == "cuda", arena.places
        self.device, allocator = device_and_allocator(str(where) if self.on_cuda else "soft:0")
        self.arena, self.optimizer, self.memory = _pointer(), None, {}
        _arena_create(byref(self.arena))
        weakref.finalize(self, _arena_destroy, self.arena)
        for group in arena.groups:
            specs = (_TensorSpec * len(group.places))(*map(self._spec, group.places))
            _arena_add_group(self.arena, group.bytes + group.bytes % 2, specs, len(specs), None)
        self._lend(PARAMETERS, arena.values)
        self._lend(GRADIENTS, arena.gradients)
        _arena_commit(self.arena, allocator, self.stream(), 1 << PARAMETERS | 1 << GRADIENTS)
        assert all(_arena_view(self.arena, PARAMETERS, i) == place.value.data_ptr()
                   for i, place in enumerate(arena.places))

    @staticmethod
    def _spec(place):
        p = place.parameter
        if p.dtype not in DTYPES and (p.dtype.is_floating_point or p.dtype.is_complex):
            raise ValueError("optimizer: parameter %s is %s; take float32, float64, float16 or "
                             "bfloat16" % (place.name, p.dtype))
        shape = tuple(p.shape) if p.dim() == 2 and p.is_contiguous() else (p.numel(),)
        if p.dtype not in DTYPES:  # integers, which are never trained: as many bytes, or one more
            shape = -(-p.numel() * p.element_size() // 2),
        return _TensorSpec(place.name.encode(), DTYPES.get(p.dtype, 2), len(shape),
                           (_size * 4)(*shape), place.offset)

    def _lend(self, region, memory):
        self.memory[region] = memory
        _arena_lend(self.arena, region, memory.data_ptr(), memory.numel())

    def stream(self):
        return _pointer(torch.cuda.current_stream(self.memory[PARAMETERS].device).cuda_stream
                        if self.on_cuda else None)

    def open(self, config, regions):
        """Make the optimizer, in the place of an earlier one, whose state it takes over."""
        sizes, made = _arena_info(self.arena).region_bytes, _pointer()
        for region in regions - set(self.memory):
            if sizes[region]:
                self._lend(region, new_range(sizes[region], self.memory[PARAMETERS].device))
        state = self.state() if self.optimizer else None
        _create(self.arena, byref(config), self.stream(), byref(made))
        if state:
            self.finalizer()
        self.optimizer, self.finalizer = made, weakref.finalize(self, _destroy, made)
        if state:
            self.put_state(*state)

    def state(self):
        """_State, and how often each tensor was updated."""
        state, updates = _State(), (ctypes.c_uint64 * len(self.places))()
        _get_state(self.optimizer, byref(state), updates, self.stream())
        _synchronize(self.device, self.stream())
        return state, [state.step if n == ALWAYS else n for n in updates]

    def put_state(self, state, updates):
        updates = [ALWAYS if n == state.step else n for n in updates]
        _put_state(self.optimizer, byref(state), (ctypes.c_uint64 * len(updates))(*updates),
                   self.stream())

    def view(self, region, i):
        """Parameter i's moment or master, as a tensor; None: it has none."""
        address, value = _arena_view(self.arena, region, i), self.places[i].value
        if address is None:
            return None
        dtype = torch.float64 if value.dtype == torch.float64 else torch.float32
        begin = address - self.memory[region].data_ptr()
        flat = self.memory[region][begin:begin + value.numel() * dtype.itemsize].view(dtype)
        return flat.as_strided(value.shape, value.stride())


class _Pass:
    """Before a class of torch.optim: step() is one pass of libashlar's over the arena.

        optimizer(arena, lr, params=None, clip_norm=0, loss_scale=0, zero_gradients=False, ...)

    params      parameters or groups of the arena's; None: all
    clip_norm   the gradients' 2-norm is scaled down to this, as by clip_grad_norm_(); 0: it is not
    loss_scale  multiply the loss by scale(loss): steps then divide gradients by the scale, which
                grows and shrinks as GradScaler's does, from this on; 0: none. GradScaler works, too
    zero_gradients   step() leaves gradients that are 0, so that no zero_grad() is needed

    Groups may differ in lr and weight_decay. A step with a gradient that is not finite is skipped.
    Muon updates matrices; what has another rank, and groups with elementwise=True, for embeddings
    and output layers, are updated as by AdamW, with betas and adamw_eps.
    """

    fields = {"momentum": "momentum", "dampening": "dampening", "nesterov": "nesterov",
              "alpha": "smoothing", "lr_decay": "rate_decay", "eps": "epsilon"}  # of _Config
    state_names = {}  # PyTorch's names of a parameter's state, with their regions; "step" has none

    def __init__(self, arena, *values, params=None, clip_norm=0.0, loss_scale=0.0,
                 zero_gradients=False, **options):
        if not isinstance(arena, Arena):
            raise TypeError("%s takes what contiguous(module) returns, not a %s; parameters or groups go "
                            "to params=" % (type(self).__name__, type(arena).__name__))
        self._arena, self._zero_gradients = arena, zero_gradients
        self._limits = {"clip_norm": clip_norm or 0.0, "loss_scale": loss_scale}
        self._index = {id(place.parameter): i for i, place in enumerate(arena.places)}
        self._set, self._config, self._followed = {}, None, None
        arena.check(mend=True)
        self._versions = {i: None for i, place in enumerate(arena.places)  # of what has a master
                          if place.value.dtype in (torch.float16, torch.bfloat16)}
        self._native = _Native(arena)
        super().__init__(arena.module.parameters() if params is None else params, *values, **options)
        self._step_supports_amp_scaling = False  # also with fused=True: GradScaler has to unscale
        self._follow()

    def __getstate__(self):
        raise TypeError("an optimizer of an arena is not copied or saved; use its state_dict()")

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if id(p) not in self._index and p.numel():
                del self.param_groups[-1]
                raise ValueError("%s: a parameter of shape %s is not the arena's" % (
                    type(self).__name__, tuple(p.shape)))

    def _names(self, place):
        has_momentum = self.param_groups[0].get("momentum", 0)
        return {name: region for name, region in self.state_names.items()
                if name != "momentum_buffer" or has_momentum}

    def _indices(self):
        """The numbers of the groups' parameters in the arena."""
        return [self._index[id(p)] for group in self.param_groups for p in group["params"]
                if p.numel()]

    # ---- groups, as options of tensors ----

    def _shared(self, group):
        """The fields of a _Config that all groups have to share."""
        for key in filter(group.get, REFUSED):
            name = type(self).__name__
            raise ValueError("%s: %s is not done here; use torch.optim.%s over arena.flat()" % (
                name, key, name))
        shared = {field: group[key] for key, field in self.fields.items() if key in group}
        if "betas" in group:
            shared["beta1"], shared["beta2"] = map(float, group["betas"])
        return shared

    def _follow(self):
        """Make the groups' present values libashlar's; returns the rate that scales refer to."""
        groups = self.param_groups
        kind = next(c.__name__.upper() for c in type(self).__mro__ if c.__module__ == __name__)
        kind = "ADAMW" if groups[0].get("decoupled_weight_decay") else kind
        shared, *others = map(self._shared, groups)
        for key in (key for other in others for key in shared if other[key] != shared[key]):
            raise ValueError("groups may differ in lr and weight_decay, but not in %s" % key)
        rates, decays = ([float(group[key]) for group in groups] for key in ("lr", "weight_decay"))
        frozen = [not place.parameter.requires_grad or place.parameter.grad is None
                  for place in self._arena.places]
        rate, decay = max(rates), max(decays)
        if self._followed == (rates, decays, frozen, shared):
            return rate
        options = [(True, False, False, 1, 1)] * len(frozen)
        for group, its_rate, its_decay in zip(groups, rates, decays):
            # A scale of 0 would stand for 1; 1e-300 leaves no rate in any type. Digits beyond a
            # rate's own would change with each step of a schedule.
            scales = (float("%.12g" % (its_rate / rate if rate else 1)) or 1e-300,
                      float("%.12g" % (its_decay / decay if decay else 1)))
            for i in (self._index[id(p)] for p in group["params"] if p.numel()):
                options[i] = (frozen[i], not its_decay, group.get("elementwise", False), *scales)
        for i, wanted in enumerate(options):
            if self._set.get(i) != wanted:
                _arena_options(self._native.arena, i, byref(_TensorOptions(*wanted)))
                self._set[i] = wanted
        config = dict(shared, weight_decay=decay, **self._limits)
        if config != self._config:
            regions = {region for place in self._arena.places
                       for region in self._names(place).values()} | {MASTER}
            self._native.open(_Config(
                KINDS.index(kind), True, learning_rate=1, scale_interval=2000,
                scale_growth=2, scale_backoff=0.5, **config), regions - {None})
            self._config = config
        self._followed = rates, decays, frozen, shared
        return rate

    # ---- steps ----

    def _mend(self):
        """Gradients that back-propagation made elsewhere come back; masters follow parameters."""
        moved = self._arena.settle()
        if moved:
            warnings.warn("ashlar: %d parameters or gradients of the arena lay elsewhere and were "
                          "copied, that of %s first: call optimizer.zero_grad(), not module."
                          "zero_grad()" % (len(moved), moved[0].name), stacklevel=3)
        for i, version in self._versions.items():
            if version != self._arena.places[i].parameter._version:
                self._native.view(MASTER, i).copy_(self._arena.places[i].parameter)

    @torch.no_grad()
    def step(self, closure=None, *, gradient_scale=1.0):
        """One step. gradient_scale multiplies gradients: 1 / micro-batches after accumulation."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        self._mend()
        native, rate = self._native, self._follow()
        zeroes = self._zero_gradients and len(self._indices()) == len(self._arena.places)
        lend_threads(torch.get_num_threads())
        _step(native.optimizer, byref(_Call(
            learning_rate=rate, gradient_scale=gradient_scale, zero_gradients=zeroes)),
            native.stream())
        if not native.on_cuda:
            _synchronize(native.device, None)
        if zeroes:
            self._arena.put_back()
        elif self._zero_gradients:
            self.zero_grad()
        self._arena.changed()
        self._note_versions()
        if not self.state and self._names(self._arena.places[0]):
            self._show_state()
        return loss

    def _note_versions(self):
        self._versions = {i: self._arena.places[i].parameter._version for i in self._versions}

    def zero_grad(self, set_to_none=False):
        """Fill the gradients with zeros, in one pass; they are never set to None."""
        self._arena.zero_grad([self._arena.places[i] for i in self._indices()])

    def scale(self, loss):
        """The loss, multiplied by the loss scale: what to call backward() on."""
        return loss * self.last_step().loss_scale

    def last_step(self):
        """Steps done and skipped, the gradients' norm before clipping, the loss scale for the next
        step, good steps since it changed, whether the last step was skipped. Waits for it."""
        return LastStep(*(getattr(self._native.state()[0], name) for name in LastStep._fields))

    # ---- state in PyTorch's shape ----

    def _views(self, i):
        """The tensors of a parameter's state, by PyTorch's names."""
        names = {**self._names(self._arena.places[i]), "master": MASTER, "room": None}
        return {name: view for name, region in names.items() if region is not None
                for view in [self._native.view(region, i)] if view is not None}

    def _show_state(self):
        """Fill `state`, where tools look whether there were steps; returns _State."""
        state, updates = self._native.state()
        for i in self._indices():
            place = self._arena.places[i]
            if updates[i] and self._names(place):
                self.state[place.parameter] = self._views(i)
                if "step" in self._names(place):
                    self.state[place.parameter]["step"] = torch.tensor(float(updates[i]))
        return state

    def state_dict(self):
        state = self._show_state()
        return dict(super().state_dict(), ashlar={
            name: getattr(state, name) for name in ("step", "skipped", "loss_scale", "good_steps")})

    @torch.no_grad()
    def load_state_dict(self, state_dict):
        """Take over the state of an optimizer of this class, or of PyTorch's of that name."""
        saved_groups = state_dict["param_groups"]
        super().load_state_dict(dict(state_dict, state={}, param_groups=[
            {**self.defaults, **group} for group in saved_groups]))
        self._follow()
        extra, updates = state_dict.get("ashlar", {}), [0] * len(self._arena.places)
        numbers = (number for group in saved_groups for number in group["params"])
        parameters = (p for group in self.param_groups for p in group["params"])
        for saved, p in zip(map(state_dict["state"].get, numbers), parameters):
            if saved and p.numel():
                i = self._index[id(p)]
                for name, tensor in self._views(i).items():
                    given = saved.get(name, p if name == "master" else 0)  # 0: it is not there
                    if given is not None and getattr(given, "shape", None) != p.shape:
                        raise ValueError(
                            "load_state_dict: there is no %s of %s of shape %s; take the state of %s over "
                            "equal parameters in this order" % (
                                name, self._arena.places[i].name, tuple(p.shape), type(self).__name__))
                    tensor.copy_(given) if given is not None else tensor.zero_()
                updates[i] = int(saved.get("step", max(1, extra.get("step", 1))))
        extra = {"step": 0, **extra}
        self._native.put_state(_State(**dict(extra, step=max(updates + [extra["step"]]))), updates)
        self._note_versions()
        self._show_state()


def _over(base, **state_names):
    return type(base.__name__, (_Pass, base), {
        "__doc__": _Pass.__doc__, "state_names": state_names})


Adam = _over(torch.optim.Adam, step=None, exp_avg=MOMENT1, exp_avg_sq=MOMENT2)
AdamW = _over(torch.optim.AdamW, **Adam.state_names)
SGD = _over(torch.optim.SGD, momentum_buffer=MOMENT1)
RMSprop = _over(torch.optim.RMSprop, step=None, square_avg=MOMENT2, momentum_buffer=MOMENT1)


class Adagrad(_over(torch.optim.Adagrad, step=None, sum=MOMENT2)):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.state.clear()
        for i in self._indices():
            self._views(i)["sum"].fill_(self.defaults["initial_accumulator_value"])


class _MuonGroups(torch.optim.Optimizer):
    """The groups of torch.optim.Muon, which earlier versions of PyTorch do not have."""

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True,
                 ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7, ns_steps=5, adjust_lr_fn=None,
                 betas=(0.9, 0.999), adamw_eps=1e-8, elementwise=False):
        super().__init__(params, {name: value for name, value in locals().items()
                                  if name not in ("self", "params", "__class__")})


class Muon(_over(_MuonGroups, momentum_buffer=MOMENT1, room=MOMENT2)):
    fields = {"momentum": "momentum", "nesterov": "nesterov", "adamw_eps": "epsilon",
              "eps": "ns_epsilon", "ns_steps": "ns_steps"}

    def _shared(self, group):
        scale = group["adjust_lr_fn"] or "original"
        if scale not in MUON_SCALES:
            raise ValueError("Muon: adjust_lr_fn %r; give one of %s" % (scale, list(MUON_SCALES)))
        return dict(super()._shared(group), ns=tuple(group["ns_coefficients"]),
                    muon_scale=MUON_SCALES.index(scale))

    def _names(self, place):
        is_elementwise = place.parameter.dim() != 2 or any(
            p is place.parameter for group in self.param_groups if group["elementwise"]
            for p in group["params"])
        return Adam.state_names if is_elementwise else self.state_names
