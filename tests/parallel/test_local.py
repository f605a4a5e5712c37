"""Memory that the processes of one machine share, and how tensors are laid out in it."""

import errno
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regun.parallel import local


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 9))
def test_groups_hold_all_numbers_in_order_and_never_too_many(sizes: list[int], most: int) -> None:
    parts = torch.split(torch.arange(sum(sizes)), sizes)
    groups = [torch.cat(group) for group in local._groups(parts, most)]
    assert torch.equal(torch.cat(groups), torch.arange(sum(sizes)))
    assert all(len(group) <= most for group in groups)
    assert len(groups) <= sum(sizes) // most + 1, "as few as possible"


@pytest.mark.skipif(not hasattr(local.os, "posix_fallocate"), reason="this system does not say how much there is")
def test_memory_is_as_large_as_the_machine_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 0

    def allocate(file: int, start: int, size: int) -> None:
        if size > free:
            raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(local.os, "posix_fallocate", allocate)
    for free in (3 * room for room in local.ROOM):
        local._make_memory(tmp_path / "memory", 3)
        assert (tmp_path / "memory").stat().st_size == free
    free = 3 * local.ROOM[-1] - 1
    monkeypatch.setattr(local.tempfile, "mkdtemp", lambda **_: str(tmp_path))
    assert local._host_and_folder(3) == ["", ""]
    assert not tmp_path.exists(), "nothing is left behind"
