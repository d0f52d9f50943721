"""Equal searches of waiting dequeues: which of them run, and which of them an empty search answers."""

from itertools import product

import pytest

from tickwheel.plan import Search
from tickwheel.redis import shared_searches
from tickwheel.redis.shared_searches import SharedSearches

pytestmark = pytest.mark.unit


class Calls:
    """Named calls that search one queue with one filter."""

    def __init__(self, *, is_subscribed: bool = False) -> None:
        self.searches = SharedSearches()
        self.is_subscribed = is_subscribed
        self._by_name: dict[str, Search] = {}

    def begin(self, names: str, *, final: bool = False, woken: bool = False) -> None:
        for name in names:
            search = self._by_name[name] = Search("q", b"filter", "", final, woken)
            self.searches.begin(search, lambda: None, is_subscribed=self.is_subscribed)

    def end(self, name: str, *, outcome: bool | None, is_complete: bool = True) -> None:
        search = self._by_name.pop(name)
        search.found, search.is_complete = outcome, is_complete
        self.searches.end(search, is_subscribed=self.is_subscribed)

    def release_slow(self, name: str) -> None:
        self.searches.release_slow(self._by_name[name], is_subscribed=self.is_subscribed)

    @property
    def running(self) -> str:
        """The calls that may search."""
        items = self._by_name.items()
        return "".join(name for name, of in items if not of.is_answered and not self.searches.is_queued(of))

    @property
    def answered(self) -> str:
        """The calls that another search has answered."""
        return "".join(name for name, of in self._by_name.items() if of.is_answered)


def test_an_empty_search_answers_the_calls_that_asked_before_it_began() -> None:
    calls = Calls()
    calls.begin("abc")
    assert (calls.running, calls.answered) == ("a", "")

    calls.end("a", outcome=False)
    # The calls asked after the search of `a` began, so a message may have become ready in between.
    assert (calls.running, calls.answered) == ("b", "")
    calls.begin("d")
    calls.end("b", outcome=False)

    assert (calls.running, calls.answered) == ("d", "c")


def test_an_empty_search_answers_all_calls_while_no_message_is_announced() -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("abc")
    calls.end("a", outcome=False)
    calls.begin("d")

    assert (calls.running, calls.answered) == ("", "bcd")


def test_a_message_that_became_ready_during_an_empty_search_causes_another_search() -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("abc")

    calls.searches.announce("q")
    calls.end("a", outcome=False)

    assert (calls.running, calls.answered) == ("b", "")
    calls.end("b", outcome=False)
    assert (calls.running, calls.answered) == ("", "c")


@pytest.mark.parametrize("is_subscribed_now", [False, True])
def test_an_empty_search_answers_no_later_call_unless_the_process_is_subscribed_all_the_time(
    is_subscribed_now: bool,
) -> None:
    calls = Calls(is_subscribed=not is_subscribed_now)
    calls.begin("a")
    calls.is_subscribed = is_subscribed_now
    calls.end("a", outcome=False)

    calls.begin("b")

    assert (calls.running, calls.answered) == ("b", "")


def test_a_call_at_the_end_of_its_wait_does_not_rely_on_announcements() -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("a")
    calls.end("a", outcome=False)

    calls.begin("bcd", final=True)
    assert (calls.running, calls.answered) == ("b", "")
    calls.end("b", outcome=False)
    assert (calls.running, calls.answered) == ("c", "")
    calls.end("c", outcome=False)

    assert (calls.running, calls.answered) == ("", "d")


def test_a_search_that_left_a_shard_out_answers_no_call_at_the_end_of_its_wait_and_no_later_call() -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("ab")
    calls.begin("c")
    calls.begin("d", final=True)
    calls.end("a", outcome=False, is_complete=False)
    assert (calls.running, calls.answered) == ("b", "")

    calls.end("b", outcome=False, is_complete=False)

    assert (calls.running, calls.answered) == ("d", "c")


def test_a_search_without_an_outcome_answers_no_call_and_the_next_one_runs() -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("abc")

    calls.end("a", outcome=None)

    assert (calls.running, calls.answered) == ("b", "")


def test_a_call_that_leaves_the_queue_gives_its_turn_to_the_next_one() -> None:
    calls = Calls()
    calls.begin("abc")

    calls.end("b", outcome=None)
    assert calls.running == "a"
    calls.end("a", outcome=None)

    assert calls.running == "c"


def test_each_search_that_finds_messages_doubles_the_number_of_searches_until_one_is_empty() -> None:
    calls = Calls()
    calls.begin("abcdefgh")

    calls.end("a", outcome=True)
    assert calls.running == "bc"
    calls.end("b", outcome=True)
    assert calls.running == "cdef"
    calls.end("c", outcome=False)
    calls.begin("i")

    assert (calls.running, calls.answered) == ("def", "gh")


def test_a_woken_call_searches_at_once() -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("a")
    calls.end("a", outcome=False)
    calls.searches.announce("q")
    calls.begin("bc", woken=True)

    assert calls.running == "bc"


@pytest.mark.parametrize("is_subscribed", [False, True])
def test_a_woken_call_searches_only_if_a_message_was_or_may_have_been_announced(is_subscribed: bool) -> None:
    calls = Calls(is_subscribed=True)
    calls.begin("a")
    calls.end("a", outcome=False)
    calls.is_subscribed = is_subscribed

    calls.begin("b", woken=True)

    assert (calls.running, calls.answered) == (("", "b") if is_subscribed else ("b", ""))


def test_an_empty_search_answers_no_call_after_a_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_searches, "_TRUSTED_S", 0)
    calls = Calls(is_subscribed=True)
    calls.begin("a")
    calls.end("a", outcome=False)

    calls.begin("b")

    assert calls.running == "b"


def test_a_search_that_does_not_end_stops_no_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_searches, "SWEEP_S", 0)
    calls = Calls()
    calls.begin("abcdefgh")

    calls.release_slow("b")
    assert calls.running == "ab"
    calls.release_slow("c")

    assert calls.running == "abcd"


def test_calls_of_other_filters_and_queues_and_callers_do_not_wait() -> None:
    searches = SharedSearches()
    searched = product("qr", (b"x", b"y"), ("token 'a'", "token 'b'"))
    calls = [Search(queue, where, caller, False, False) for queue, where, caller in searched]

    for call in calls:
        searches.begin(call, lambda: None, is_subscribed=True)

    assert not any(searches.is_queued(call) for call in calls)


def test_the_number_of_remembered_filters_is_limited() -> None:
    searches = SharedSearches()

    for n in range(3_000):
        call = Search("q", str(n).encode(), "", False, False)
        searches.begin(call, lambda: None, is_subscribed=True)
        searches.end(call, is_subscribed=True)

    assert len(searches._groups) <= 1_000


class CountedSearch(Search):
    """Counts how often it is read whether the search is final."""

    reads = 0

    def __getattribute__(self, name: str) -> object:
        if name == "final":
            CountedSearch.reads += 1
        return super().__getattribute__(name)


def test_many_queued_searches_that_end_are_not_read_again_for_each_of_them() -> None:
    searches = SharedSearches()
    count = 1_000
    empty = Search("q", b"filter", "", final=False, woken=False)
    searches.begin(empty, lambda: None, is_subscribed=True)
    empty.found, empty.is_complete = False, True
    searches.end(empty, is_subscribed=True)
    # Calls at the end of their wait do not rely on the empty search.
    queued = [CountedSearch("q", b"filter", "", final=True, woken=False) for _ in range(count)]
    for search in queued:
        searches.begin(search, lambda: None, is_subscribed=True)
    CountedSearch.reads = 0
    for search in reversed(queued):
        searches.end(search, is_subscribed=True)
    assert CountedSearch.reads < 10 * count
