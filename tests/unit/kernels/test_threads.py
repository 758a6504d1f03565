"""How many threads there are."""

import pytest

from swarmbo.kernels.threads import n_threads


@pytest.mark.parametrize(("said", "wanted"), [("3", 3), ("4,2", 4), (" 5 , 2,1", 5)])
def test_the_environment_says_how_many_of_a_list_the_first_number(
    said: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert n_threads() == wanted


@pytest.mark.parametrize("said", ["", "0", "-2", "many", ",4"])
def test_what_is_no_number_of_threads_is_as_if_nothing_were_said(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    cores = n_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert n_threads() == cores >= 1
