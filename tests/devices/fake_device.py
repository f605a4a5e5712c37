"""A fake accelerator: tensors that live on a device of their own and compute on the CPU.

It behaves where it matters as a CUDA device does. Tensors of two devices cannot meet, except for CPU scalars. A device
tensor has no `.numpy()`. A CPU generator cannot draw on the device, which has a generator of its own. Everything that
makes the host wait for the device is recorded in `FakeDevice.syncs`: reading a number, copying back, operations whose
result has a size that depends on the numbers, and copies to the device that block or start from pageable memory.

torch's device type `lazy` carries the tensors: the CPU build has no kernels for it, and autograd works on it.
"""

import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("lazy:0")
CPU = torch.device("cpu")
aten = torch.ops.aten

WAITS = {
    aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.unique_dim, aten._unique2, aten.unique_consecutive,
    aten.bincount, aten.equal, aten.is_nonzero, aten.histc,
}  # fmt: skip
"""Operations that need the device's numbers on the host."""
TAKES_INDICES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
COPIES = {aten._to_copy, aten.copy_, aten._foreach_copy_}


class DeviceTensor(Tensor):
    """A tensor on the fake device; `inner` holds its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "DeviceTensor":
        about = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return Tensor._make_wrapper_subclass(cls, inner.shape, device=DEVICE, **about)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"DeviceTensor({self.inner!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> "DeviceTensor":
        return DeviceTensor(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FakeDevice.in_use().execute(func, args, kwargs or {})


class FakeDevice(TorchDispatchMode):
    """The device while it is in use: what made the host wait (`syncs`), and its generator."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: list[str] = []
        self.pinned: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        self.state = torch.Generator().manual_seed(0).get_state()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.execute(func, args, kwargs or {})

    def execute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation on the numbers of its tensors; the results are on the device of the operation."""
        leaves = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        on_device = {id(leaf.inner): leaf for leaf in leaves if isinstance(leaf, DeviceTensor)}
        packet = func.overloadpacket
        if packet in (aten._pin_memory, aten.is_pinned):
            return self._pin(packet, args[0])
        device = kwargs.get("device")
        target = bool(on_device) if device is None else torch.device(device).type == DEVICE.type
        self._check_generator(func, kwargs, target)
        if packet in COPIES:
            self._record_copies(packet, args, kwargs, target)
        elif on_device:
            self._check_devices(func, leaves)
            if packet in WAITS or (packet in TAKES_INDICES and _has_mask(args[1])):
                self._record(func)
            if packet is aten.repeat_interleave and kwargs.get("output_size") is None and len(args) < 3:
                self._record(func)
        plain = {**kwargs, "device": CPU} if device is not None else kwargs
        drawn = target and torch.Tag.nondeterministic_seeded in func.tags
        with self._own_generator() if drawn else _nothing():
            out = func(*tree_map(_inner, args), **tree_map(_inner, plain))
        if packet is aten.copy_:
            return args[0]
        if not target:
            return out
        return tree_map(lambda o: on_device.get(id(o), o) if not _is_plain(o) else _wrapped(o, on_device), out)

    @staticmethod
    def in_use() -> "FakeDevice":
        """Return the device of the innermost `fake_device()`."""
        if _current is None:
            raise RuntimeError("the fake device is used outside of `fake_device()`.")
        return _current

    def _record(self, func: Any, what: str = "") -> None:
        here = [f for f in traceback.extract_stack() if "/regun/" in f.filename]
        place = f"{here[-1].filename.rpartition('/regun/')[2]}:{here[-1].lineno}" if here else "test"
        self.syncs.append(f"{func}{what} at {place}")

    def _record_copies(self, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: bool) -> None:
        """Record a copy between host and device that makes the host wait."""
        if packet is aten._foreach_copy_:
            pairs = list(zip(args[0], args[1], strict=True))
        else:
            pairs = [(args[0], args[1])] if packet is aten.copy_ else [(DEVICE if target else CPU, args[0])]
        non_blocking = kwargs.get("non_blocking") or (packet is not aten._to_copy and len(args) > 2 and args[2])
        for into, source in pairs:
            to_device = isinstance(into, DeviceTensor) or into == DEVICE if not _is_plain(into) else False
            from_device = isinstance(source, DeviceTensor)
            if from_device and not to_device:
                self._record(packet, " to the host")
            elif to_device and not from_device and source.numel():
                if not non_blocking:
                    self._record(packet, " that blocks")
                elif source.untyped_storage() not in self.pinned:
                    self._record(packet, " from pageable memory")

    def _check_devices(self, func: Any, leaves: list[Tensor]) -> None:
        hosts = [leaf for leaf in leaves if not isinstance(leaf, DeviceTensor) and leaf.ndim]
        if hosts:
            shapes = [tuple(leaf.shape) for leaf in hosts]
            raise RuntimeError(f"{func}: tensors of {DEVICE} and of the CPU (of shape {shapes}) meet.")

    def _check_generator(self, func: Any, kwargs: dict[str, Any], target: bool) -> None:
        generator = kwargs.get("generator")
        if target and generator is not None and generator.device.type != DEVICE.type:
            raise RuntimeError(f"{func}: a generator of {generator.device} cannot draw on {DEVICE}.")

    def _pin(self, packet: Any, tensor: Tensor) -> Any:
        if isinstance(tensor, DeviceTensor):
            raise RuntimeError("only CPU tensors can be pinned.")
        if packet is aten.is_pinned:
            return tensor.untyped_storage() in self.pinned
        copied = tensor.clone()
        self.pinned.add(copied.untyped_storage())
        return copied

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(before)


class DeviceModule:
    """What `torch.get_device_module` returns for the device: its generator. torch caches it, so it has no state."""

    def manual_seed(self, seed: int) -> None:
        FakeDevice.in_use().state = torch.Generator().manual_seed(seed).get_state()

    def get_rng_state(self, device: Any = None) -> Tensor:
        return FakeDevice.in_use().state.clone()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        FakeDevice.in_use().state = state.clone()

    def is_available(self) -> bool:
        return True


_current: FakeDevice | None = None


@contextmanager
def fake_device() -> Iterator[FakeDevice]:
    """Make `DEVICE` usable inside the block; yields the record of what happens on it."""
    from torch.optim import optimizer

    global _current
    fused: Callable[[], list[str]] = optimizer._get_fused_kernels_supported_devices
    inference_mode = torch.inference_mode
    device = FakeDevice()
    _current = device
    torch.inference_mode = torch.no_grad  # views of wrapped tensors fail in it
    torch.lazy = DeviceModule()
    optimizer._get_fused_kernels_supported_devices = lambda: [*fused(), DEVICE.type]
    try:
        with device:
            yield device
    finally:
        optimizer._get_fused_kernels_supported_devices = fused
        torch.inference_mode = inference_mode
        del torch.lazy
        _current = None


def on_host(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor of either device, without a record."""
    return tensor.inner.detach() if isinstance(tensor, DeviceTensor) else tensor.detach()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, DeviceTensor) else value


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, DeviceTensor)


def _wrapped(value: Tensor, on_device: dict[int, Tensor]) -> Tensor:
    """Return a result on the device: the tensor itself, if it was changed in place."""
    return on_device[id(value)] if id(value) in on_device else DeviceTensor(value)


def _has_mask(indices: Any) -> bool:
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)
