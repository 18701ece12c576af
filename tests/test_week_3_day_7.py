"""Week 3 Day 7: a server: the engine's own thread, requests that come and go, clients that disconnect, events."""

import json

import pytest
import scenes
from scenes import play

task_1 = pytest.mark.task("w3d7.1")
task_2 = pytest.mark.task("w3d7.2")
task_3 = pytest.mark.task("w3d7.3")
task_4 = pytest.mark.task("w3d7.4")

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # one was given up

TOO_LONG = {"error": {"message": "the request took too long", "type": "server_error", "param": None, "code": "timeout"}}
LATE = ["ApiError 504", *([name, value] for name, value in sorted(TOO_LONG["error"].items()))]
THREE = [
    ([10], "", None, ""),
    ([11], "<10>", None, ""),
    ([12], "<11><12>", "length", ""),
]  # one update per step


def assert_seen(got, expected, what):
    """Fail unless the scene saw this."""
    __tracebackhide__ = True
    assert got == expected, f"{what}: expected {expected}, got {got}"


def tokens_of(updates):
    return [token for update in updates for token in update[0]]


def text_of(updates):
    return "".join(update[1] for update in updates)


def assert_whole(updates, count, what):
    """Fail unless these are all updates of a request that got `count` tokens, in any portions."""
    __tracebackhide__ = True
    assert_seen(tokens_of(updates), list(range(10, 10 + count)), f"{what}, its tokens")
    assert_seen(text_of(updates), "".join(f"<{token}>" for token in range(10, 10 + count)), f"{what}, its text")
    assert_seen([update[2] for update in updates], [None] * (len(updates) - 1) + ["length"], f"{what}, finish_reason")


# ------------------------------------------------------------------------------------ task 1: the engine's own thread


@task_1
def test_task_1_an_update(impl):
    assert_seen(play(impl, scenes.published, 3, [1]), [([10], "", None, "")], "an update after one token")


@task_1
@pytest.mark.parametrize("at", [[1, 2, 3], [1, 3], [3], [2, 3]], ids=str)
def test_task_1_what_is_new(impl, at):
    """Each update has the tokens and the text since the last one."""
    assert_whole(play(impl, scenes.published, 3, at), 3, f"published when it had {at} tokens")


@task_1
def test_task_1_nothing_new(impl):
    """A second update at the same place is empty."""
    seen = play(impl, scenes.published, 5, [2, 2, 3])
    assert_seen(seen, [([10, 11], "<10>", None, ""), ([], "", None, ""), ([12], "<11>", None, "")], "updates")


@task_1
def test_task_1_without_text(impl):
    """If the client wants no text, `request.text` is None."""
    seen = play(impl, scenes.published, 2, [1, 2], False)
    assert_seen(seen, [([10], "", None, ""), ([11], "", "length", "")], "updates without text")


@task_1
def test_task_1_an_error(impl):
    seen = play(impl, scenes.published_error)
    assert_seen(seen, ([10], "", "error", "a sampler that fails"), "the update of a request that failed")


@task_1
def test_task_1_an_update_stays(impl):
    """An update does not change while the engine goes on."""
    before, after = play(impl, scenes.kept)
    assert_seen(after, before, "an update, when the request has gone on")


@task_1
def test_task_1_a_loop_without_time(impl):
    """`publish` never waits for the event loop, because a waiting engine would stop all requests."""
    waits, seen = play(impl, scenes.busy_loop)
    assert not waits, "publish waits until the loop has time for the update"
    assert_whole(seen, 3, "three updates for a loop without time")


@task_1
def test_task_1_an_update_is_of_its_time(impl):
    """An update holds what was new when it was published, even if the loop takes it after the engine has gone on."""
    assert_seen(play(impl, scenes.busy_loop)[1], THREE, "three updates for a loop without time")


@task_1
def test_task_1_a_request(impl):
    assert_seen(play(impl, scenes.one_request), THREE, "the updates of a request")


@task_1
@pytest.mark.parametrize("turns", [False, True], ids=["all at once", "one at a time"])
def test_task_1_several_requests(impl, turns):
    """Each request gets its own updates, when it has something new. An engine need not serve all requests in each
    step."""
    seen = play(impl, scenes.three_requests, turns)
    for id, count in (("a", 2), ("b", 4), ("c", 3)):
        assert_whole(seen[id], count, f"request {id}")
        assert_seen(len(seen[id]), count, f"request {id}, number of updates")


@task_1
def test_task_1_one_thread(impl):
    number, is_loops = play(impl, scenes.where_the_engine_is_used)
    assert number == 1, f"the engine is used in {number} threads, expected one"
    assert not is_loops, "the engine is used in the loop's thread, where nobody may wait"


@task_1
def test_task_1_jobs_come_first(impl):
    """All jobs that arrive during a step are done before the next step, in their order, and none during a step."""
    expected = ["add a", "step", "job 0", "job 1", "job 2", "step", "step"]
    assert_seen(play(impl, scenes.jobs_during_a_step), expected, "what the engine's thread did")


@task_1
def test_task_1_answers(impl):
    """Jobs are done even without a step. A failing job raises its error in its caller, and affects no other job."""
    order, error, after = play(impl, scenes.answers_of_jobs)
    assert_seen(order, list(range(50)), "the order of fifty jobs")
    assert_seen([error, after], ["ValueError", "well"], "the answers of a job that fails, and of one after it")


@task_1
def test_task_1_sleeps_without_work(impl):
    sleeps = play(impl, scenes.sleeps_without_work)
    assert sleeps, "without work, the thread looks for some again and again: let it sleep until a job comes"


@task_1
def test_task_1_wakes_up(impl):
    seen = play(impl, scenes.after_a_pause)
    assert_seen(seen, [[([10], "<10>", "length", "")]] * 2, "two requests, each after a pause")


@task_1
def test_task_1_a_step_that_fails(impl):
    """If a step fails, all requests end with its error, and the engine serves the next one as usual."""
    seen = play(impl, scenes.failing_step)
    assert_seen(seen[:2], [([], "", "error", "no memory")] * 2, "the last updates of the requests whose step failed")
    assert_seen(seen[2], THREE[-1], "the last update of the next request")


@task_1
@pytest.mark.parametrize("kind", ["ValueError", "OSError"])
def test_task_1_a_step_that_fails_in_any_way(impl, kind):
    seen = play(impl, scenes.failing_step, kind)
    assert_seen(seen[:2], [([], "", "error", "no memory")] * 2, f"the last updates after a {kind}")
    assert_seen(seen[2], THREE[-1], "the last update of the next request")


@task_1
def test_task_1_stop_ends_what_has_begun(impl):
    """After `stop`, steps and jobs go on until no request is left."""
    seen, answer = play(impl, scenes.stopped_with_work)
    assert_whole(seen, 4, "a request that is served when `stop` is called")
    assert_seen(answer, "done", "a job that comes after `stop`")


@task_1
def test_task_1_a_job_in_the_last_step(impl):
    """The thread does all jobs that have arrived before it ends."""
    _, answer = play(impl, scenes.stopped_with_work, 1)
    assert_seen(answer, "done", "a job that comes after `stop`, in the last step")


@task_1
def test_task_1_stop_in_time(impl):
    assert_seen(
        play(impl, scenes.stopped_too_late), ("abort", ""), "the end of a request that `stop` does not wait for"
    )


# ------------------------------------------------------------------------------------ task 2: requests that come and go


@task_2
def test_task_2_a_request(impl):
    assert_seen(play(impl, scenes.generated), THREE, "the updates of a request")


@task_2
def test_task_2_as_they_come(impl):
    """An update arrives when its step ends, not when the request ends."""
    assert_seen(play(impl, scenes.as_they_come), [[10, 1], [11, 2], [12, 3]], "tokens, and steps by then")


@task_2
def test_task_2_many(impl):
    expected = [list(range(10, 10 + count)) for count in range(1, 21)]
    assert_seen(play(impl, scenes.many), expected, "tokens of twenty requests")


@task_2
def test_task_2_made_in_the_engines_thread(impl):
    """The engine's thread makes the request, because parts of it, such as MLX's arrays, belong to that thread."""
    assert play(impl, scenes.made_in), "`make_request` was called in another thread than the engine's"


@task_2
@pytest.mark.parametrize(("running", "count", "expected"), [(0, None, "open"), (2, None, "open"), (3, None, "full")])
def test_task_2_room_for_one_more(impl, running, count, expected):
    seen = play(impl, scenes.open_for, 3, running, count, False)
    assert_seen(seen.replace("QueueFullError", "full"), expected, f"at most 3, {running} are running, one more")


@task_2
@pytest.mark.parametrize(("running", "count"), [(0, 3), (0, 4), (1, 2), (1, 3), (2, 2), (3, 1)])
def test_task_2_room_for_several(impl, running, count):
    """A client may ask for several answers at once. Either all of them have room, or none is accepted."""
    seen = play(impl, scenes.open_for, 3, running, count, False)
    expected = "open" if running + count <= 3 else "QueueFullError"
    assert_seen(seen, expected, f"at most 3, {running} are running, {count} more")


@task_2
@pytest.mark.parametrize("running", [1, 3])
def test_task_2_no_more_after_stop(impl, running):
    """After `stop`, the error is EngineStoppedError even without room, because it would be useless to try again
    later."""
    seen = play(impl, scenes.open_for, 3, running, None, True)
    assert_seen(seen, "EngineStoppedError", "`check_open` after `stop` was called")


@task_2
def test_task_2_no_more_when_broken(impl):
    """After the engine's thread has failed, no request is accepted."""
    assert_seen(play(impl, scenes.open_when_broken), "EngineStoppedError", "`check_open` of a broken engine")


@task_2
def test_task_2_refused_again(impl):
    """A refused request never counts, so refusing two requests takes no room."""
    seen = play(impl, scenes.refused_again)
    assert_seen(seen, ["QueueFullError", "QueueFullError", 1], "two requests without room, then `num_requests`")


@task_2
def test_task_2_refused(impl):
    """A request without room is refused at once, before anything is made for it. A request that has just begun already
    counts."""
    second, made, log, third = play(impl, scenes.refused)
    assert_seen(second, "QueueFullError", "the second of two requests where one may be")
    assert_seen([made, log], [[], []], "what was made of a request that has no room, and what the engine saw of it")
    assert_seen(third, THREE[-1], "the last update of a request that comes when the first is over")


@task_2
def test_task_2_counts(impl):
    seen = play(impl, scenes.counted)
    what = "`num_requests` before, while two run, when one was closed, when one was refused, when all were closed"
    assert_seen(seen, [0, 2, 1, 1, 0], what)


@task_2
def test_task_2_refused_by_the_engine(impl):
    """The caller gets the error if a request is invalid."""
    *errors, streams = play(impl, scenes.refused_by_the_engine)
    assert_seen(errors, ["ValueError", "ValueError"], "a request that cannot be made, and one that the engine refuses")
    assert_seen(streams, [], "who is still listened to")


@task_2
@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_task_2_a_client_that_leaves(impl, how):
    """When a client leaves, its request is aborted, and the others go on."""
    seen = play(impl, scenes.left, how)
    assert_seen(seen[:-1], [["add a", "abort a"], []], "what the engine saw of it, and who is still listened to")
    assert_seen(seen[-1], 4, "fields of the last update of another request")


@task_2
def test_task_2_a_client_that_leaves_before_it_began(impl):
    seen = play(impl, scenes.left_before_it_began)
    assert_seen(seen, [[], [], 0], "who is served, who is listened to, and how many count")


@task_2
def test_task_2_nobody_waits_to_leave(impl):
    """A client that leaves does not wait for the engine's step. The request is aborted after the step."""
    waits, log = play(impl, scenes.closed_during_a_step)
    assert not waits, "a client that goes away waits until the engine's step is over"
    assert_seen(log, ["add a", "abort a"], "what the engine saw of the request")


@task_2
def test_task_2_after_the_end(impl):
    """Nothing of a finished request is kept."""
    assert_seen(play(impl, scenes.after_the_end), [[], ["add a"]], "who is listened to, and what the engine saw")


@task_2
def test_task_2_a_step_that_fails(impl):
    """The error comes as the last update, and the receiver decides what to do with it."""
    seen = play(impl, scenes.failed_request)
    assert_seen(seen, [([], "", "error", "no memory")], "the updates of a request whose step failed")


@task_2
def test_task_2_a_server_that_ends(impl):
    assert_seen(play(impl, scenes.stopped), ["abort", "EngineStoppedError"], "a request at the end, and one behind it")


# ----------------------------------------------------------------------------------------- task 3: client disconnects


@task_3
def test_task_3_work_that_ends(impl):
    assert_seen(play(impl, scenes.work_that_ends), ["done", ["work ended"], 0], "result, log, tasks that are left")


@task_3
@pytest.mark.parametrize("timeout", [None, 20.0])
def test_task_3_work_that_takes_a_while(impl, timeout):
    seen = play(impl, scenes.work_that_takes_a_while, timeout)
    assert_seen(seen, ["done", ["work ended"], 0], "result, log, tasks that are left")


@task_3
def test_task_3_work_that_fails(impl):
    seen = play(impl, scenes.work_that_fails)
    assert_seen(seen, ["ValueError expected something else", ["work ended"], 0], "error, log, tasks that are left")


@task_3
@pytest.mark.parametrize("timeout", [None, 20.0])
def test_task_3_work_that_was_too_slow_itself(impl, timeout):
    """A TimeoutError that the work raises is passed on. It does not mean that the request took too long."""
    seen = play(impl, scenes.work_that_was_too_slow_itself, timeout)
    assert_seen(seen, ["TimeoutError no answer from the disk", ["work ended"], 0], "error, log, tasks that are left")


@task_3
def test_task_3_work_that_was_cancelled(impl):
    """Other code may cancel what the work waits for. The CancelledError is passed on, because it is not a result."""
    assert_seen(play(impl, scenes.work_that_was_cancelled), "CancelledError", "what was raised")


@task_3
def test_task_3_a_client_that_goes_on_sending(impl):
    """Only the message "http.disconnect" says that the client is gone."""
    seen = play(impl, scenes.client_that_goes_on_sending)
    assert_seen(seen, ["done", ["work ended"], 0], "result, log, tasks that are left")


@task_3
@pytest.mark.parametrize("timeout", [None, 20.0])
def test_task_3_a_client_that_leaves(impl, timeout):
    """The work is cancelled, and finishes its cleanup before `until_gone` returns."""
    seen = play(impl, scenes.client_that_leaves, timeout)
    assert_seen(seen, ["ClientGoneError", ["work ended"], 0], "error, log, tasks that are left")


@task_3
def test_task_3_a_client_that_left_before(impl):
    seen = play(impl, scenes.client_that_left_before)
    assert_seen(seen[::2], ["ClientGoneError", 0], "error, tasks that are left")


@task_3
def test_task_3_time_is_over(impl):
    seen = play(impl, scenes.time_that_is_over)
    assert_seen(seen[0], LATE, "what was raised, and what a client is told of it")
    assert_seen(seen[1:], [["work ended"], 0], "log, tasks that are left")


@task_3
def test_task_3_time_is_over_for_a_client_that_sends(impl):
    """Messages of the client do not extend the time limit."""
    seen = play(impl, scenes.time_that_is_over_for_a_client_that_sends)
    assert_seen(seen, [LATE, ["work ended"], 0], "what was raised, log, tasks that are left")


@task_3
def test_task_3_no_time_at_all(impl):
    """A limit of 0 seconds is a limit, too."""
    seen = play(impl, scenes.time_that_is_over, 0.0)
    assert_seen(seen[::2], [LATE, 0], "what was raised, and tasks that are left")


@task_3
def test_task_3_cancelled(impl):
    """If `until_gone` is cancelled, for example because the server ends, the work is cancelled, too."""
    seen = play(impl, scenes.waits_for_too_long)
    assert_seen(seen, ["CancelledError", ["work ended"], 0], "error, log, tasks that are left")


@task_3
def test_task_3_a_client_that_leaves_at_the_end(impl):
    """If the work is done when the client leaves, its result counts."""
    assert_seen(play(impl, scenes.client_that_leaves_at_the_end), ["done", 0], "result, tasks that are left")


# ------------------------------------------------------------------------------------ task 4: server-sent events


def parsed(text):
    """Return the parsed JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def assert_sent(seen, events, error=None):
    """Fail unless a client got these events, and then perhaps an error, in a complete response."""
    __tracebackhide__ = True
    assert_seen(seen["raised"], "nothing", "what the response raised")
    assert_seen(seen["status"], [200], "the status, which is sent once")
    assert seen["log"].index("sent http.response.start") == min(
        place for place, line in enumerate(seen["log"]) if line.startswith("sent")
    ), "the start of a response is what is sent first"
    received = "".join(seen["bodies"]).split("\n\n")
    assert received.pop() == "", f"an event ends with an empty line, got {seen['bodies']}"
    if error is not None:
        assert_seen(parsed(received.pop().removeprefix("data: ")), error, "the last event")
    assert_seen(received, [f"data: {event}" for event in events], "events")
    assert_seen(seen["more"], [True] * (len(seen["more"]) - 1) + [False], "`more_body` of each part of the body")
    assert_seen(seen["tasks"], 0, "tasks that are left")


def assert_closed(seen):
    """Fail unless the events were closed."""
    __tracebackhide__ = True
    assert "events closed" in seen["log"], "`events` is to be closed, whatever happens: it holds a request"


@task_4
@pytest.mark.parametrize("event", ["[DONE]", '{"text": "a b"}', "物語", ""], ids=["done", "json", "utf-8", "empty"])
def test_task_4_an_event(impl, event):
    assert_seen(play(impl, scenes.encoded, event), f"data: {event}\n\n", "an event, encoded")


@task_4
def test_task_4_events(impl):
    seen = play(impl, scenes.some_events, "one", "two", "three")
    assert_sent(seen, ["one", "two", "three"])
    assert_closed(seen)


@task_4
def test_task_4_headers(impl):
    headers = dict(play(impl, scenes.some_events, "one")["headers"])
    assert headers.get("content-type", "").startswith("text/event-stream"), f"expected HEADERS, got {headers}"
    assert_seen(headers.get("cache-control"), "no-cache", "the header cache-control")


@task_4
def test_task_4_no_event(impl):
    seen = play(impl, scenes.some_events)
    assert_sent(seen, [])


@task_4
def test_task_4_as_soon_as_it_comes(impl):
    first, whole = play(impl, scenes.events_while_they_come)
    assert_seen(first, "data: one\n\n", "what was sent before the second event came")
    assert_seen(whole, "data: one\n\ndata: two\n\n", "what was sent in the end")


@task_4
def test_task_4_an_error_before_the_first(impl):
    """Before the first event, nothing is sent, so the client can still get the error's status."""
    seen = play(impl, scenes.error_before)
    assert_seen([seen["raised"], seen["status"], seen["bodies"]], ["ApiError 429", [], []], "raised, sent")
    assert_closed(seen)


@task_4
def test_task_4_an_error_later(impl):
    """The status has already been sent, so the error becomes the last event, and the response ends."""
    seen = play(impl, scenes.error_after)
    error = {"message": "expected fewer", "type": "invalid_request_error", "param": None, "code": "some_code"}
    assert_sent(seen, ["one", "two"], {"error": error})
    assert_closed(seen)


@task_4
def test_task_4_a_mistake(impl):
    """An error that is not an ApiError is raised, so that it reaches the server's log and not the client."""
    seen = play(impl, scenes.mistake_in_the_events)
    assert_seen(seen["raised"], "KeyError 'no such thing'", "what the response raised")
    assert_closed(seen)


@task_4
def test_task_4_time_is_over(impl):
    seen = play(impl, scenes.time_over, "one")
    assert_sent(seen, ["one"], TOO_LONG)
    assert_closed(seen)


@task_4
def test_task_4_time_is_over_although_events_come(impl):
    """The time limit is for all events together."""
    seen = play(impl, scenes.time_over_although_events_come)
    *events, error = "".join(seen["bodies"]).removesuffix("\n\n").split("\n\n")
    assert_seen(parsed(error.removeprefix("data: ")), TOO_LONG, "the last event")
    assert_sent(seen, [str(number) for number in range(len(events))], TOO_LONG)
    assert_closed(seen)


@task_4
def test_task_4_time_is_over_before_the_first(impl):
    seen = play(impl, scenes.time_over)
    assert_seen([seen["raised"], seen["status"], seen["bodies"]], ["ApiError 504", [], []], "raised, sent")
    assert_closed(seen)


@task_4
def test_task_4_time_is_over_before_the_start_went_out(impl):
    """Time is over while `send` waits to send the start. The client has no status yet, so it gets the error's."""
    seen = play(impl, scenes.time_over_at_the_start)
    assert_seen([seen["raised"], seen["status"], seen["bodies"]], ["ApiError 504", [], []], "raised, sent")
    assert_closed(seen)


@task_4
def test_task_4_enough_time(impl):
    assert_sent(play(impl, scenes.time_enough), ["one", "two"])


@task_4
def test_task_4_a_reader_that_leaves(impl):
    """After the client has left, nothing more is sent, and no error is raised."""
    seen = play(impl, scenes.reader_that_leaves)
    assert_seen([seen["raised"], seen["bodies"]], ["nothing", ["data: one\n\n"]], "what was raised and sent")
    assert_seen([seen["log"][-1], seen["tasks"]], ["events closed", 0], "what came last, and tasks that are left")


@task_4
def test_task_4_a_reader_that_was_never_there(impl):
    seen = play(impl, scenes.reader_that_was_never_there)
    assert_seen([seen["raised"], seen["bodies"]], ["nothing", []], "what was raised and sent")


@task_4
def test_task_4_a_slow_reader(impl):
    """The next event is requested after the client has taken the last one, so events do not pile up."""
    asked, bodies = play(impl, scenes.slow_reader)
    assert_seen(asked, ["asked for one"], "what was asked for while the first event was not taken")
    assert_seen("".join(bodies), "data: one\n\ndata: two\n\ndata: three\n\n", "what was sent in the end")


@task_4
def test_task_4_a_slow_reader_that_leaves(impl):
    seen = play(impl, scenes.slow_reader_that_leaves)
    assert_seen([seen["raised"], seen["bodies"]], ["nothing", []], "what was raised and sent")
    assert_closed(seen)


@task_4
def test_task_4_a_slow_reader_out_of_time(impl):
    """The request is freed at once when its time is over, although the last message still waits for the client."""
    log, seen = play(impl, scenes.slow_reader_out_of_time)
    assert log[-1] == "events closed", f"`events` is to be closed before the last message is sent, got {log}"
    assert_sent(seen, ["one"], TOO_LONG)


@task_4
def test_task_4_cancelled(impl):
    seen = play(impl, scenes.cancelled_reader)
    expected = ["CancelledError", "events closed", 0]
    assert_seen([seen[0], seen[1][-1], seen[2]], expected, "error, what came last, tasks that are left")


@task_4
@pytest.mark.parametrize("how", ["cancelled", "send fails"])
def test_task_4_events_left_in_the_middle(impl, how):
    """If a response stops while it sends an event, only the response itself can close `events`."""
    log = play(impl, scenes.events_left_in_the_middle, how)
    assert_seen(log, ["asked for one", "events closed"], "what happened")
