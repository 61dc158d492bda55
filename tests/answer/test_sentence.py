"""The sentence that a report opens with: right, and honest, whatever a run found."""

from __future__ import annotations

from typing import Any

import pytest
from results.made import compare
from results.test_comparison import diverged, failed, reached, result

from testbed.answer.sentence import Setup, answer, leaders

RING = Setup("8 workers in a ring at 25 ms, 10 Mbit/s", steps=60)
PARTS = {"compute": 0.05, "codec": 0.0, "wait": 0.87, "mix": 0.0, "other": 0.08}


def says(*results: dict[str, Any], setup: Setup = RING) -> str:
    return answer(compare(results), setup).sentence


def caveats(*results: dict[str, Any], setup: Setup = RING) -> str:
    return " ".join(answer(compare(results), setup).caveats)


def slow(seconds: float | None = 451.0, **values: Any) -> dict[str, Any]:
    return result("allreduce", **{"step_s": 1.0, "parts_s": PARTS, "target": reached(seconds), **values})


def test_a_clear_winner_is_told_with_its_time_its_gain_and_the_reason():
    assert says(slow(), result("choco", options={"compressor": "sign"}, target=reached(41.0))) == (
        "On 8 workers in a ring at 25 ms, 10 Mbit/s, choco sign reached 90 % in 41 s, 11× sooner than all-reduce "
        "(8 min); 87 % of all-reduce's step was waiting, 30 % of choco sign's."
    )


def test_a_target_of_loss():
    target = {"metric": "loss", "value": 0.25, "step": 1, "seconds": 2.0}
    assert "dpsgd reached a loss of 0.25 in 2.0 s" in says(
        slow(target={**target, "seconds": 9.0}), result(target=target)
    )


def test_all_reduce_may_win():
    told = says(slow(2.0), result("dpsgd", target=reached(8.0)))
    assert told.endswith(", all-reduce reached 90 % in 2.0 s, 4.0× sooner than the next, dpsgd (8.0 s).")


def test_the_yardstick_that_did_not_get_there_gets_no_number():
    told = says(slow(None), result("dpsgd", target=reached(8.0)), result("choco", target=reached(16.0)))
    assert told.endswith("2.0× sooner than the next, choco (16 s); all-reduce did not get there in 60 steps.")
    assert says(slow(None), result(target=reached(8.0))).endswith(
        "dpsgd reached 90 % in 8.0 s; all-reduce did not get there in 60 steps."
    )


def test_the_yardstick_that_failed_or_was_invalid():
    assert says(failed("allreduce"), result(target=reached(8.0))).endswith("in 8.0 s; all-reduce failed.")
    invalid = slow(grade="invalid")
    assert says(invalid, result(target=reached(8.0))).endswith("in 8.0 s; all-reduce has no valid result.")


def test_the_yardstick_that_diverged():
    assert says(diverged("allreduce"), result(target=reached(8.0))).endswith("in 8.0 s; all-reduce diverged.")
    some = [slow(), diverged("allreduce"), result(target=reached(8.0))]
    assert says(*some).endswith("in 8.0 s; all-reduce diverged in 1 of 2 repeats.")


def test_who_diverged_is_named_and_nothing_is_said_of_failures():
    ran = [slow(9.0), result(target=reached(2.0)), diverged("ecd"), result("dcd", target=reached(3.0)), diverged("dcd")]
    assert "dpsgd reached 90 % in 2.0 s, 4.5× sooner than all-reduce" in says(*ran)
    told = caveats(*ran)
    assert "Diverged: ecd (at step 86) and dcd (at step 86, in 1 of 2 repeats)." in told
    assert "failed" not in told
    assert "Left out" not in told
    assert says(diverged("ecd"), failed()) == "No method gave a result that counts: 1 cell failed, 1 cell diverged."
    swept = [result("allreduce", setting=name) for name in "ab"] + [diverged("ecd", setting="a")]
    assert "Diverged: ecd (at step 86)." in caveats(*swept)
    assert "Diverged: ecd (at 1 of 2)." in caveats(*swept, result("ecd", setting="b"))


def test_a_method_that_diverges_now_and_then_never_wins():
    ran = [result("allreduce"), result(step_s=0.01), diverged()]
    assert "all-reduce's steps were the shortest: 100 ms" in says(*ran)
    assert leaders(compare(ran), RING) == {("", "allreduce")}
    assert says(result(), diverged()).endswith("no method trained without diverging.")
    twice = [one for name in "ab" for one in (result(setting=name), diverged(setting=name))]
    assert says(*twice).endswith("no method trained without diverging at any of 2 networks.")


def test_only_one_got_there():
    assert says(slow(5.0), result(target=reached(None))).endswith("reached 90 % in 5.0 s; no other method got there.")


def test_nobody_got_there():
    told = says(slow(None, final={"test_accuracy": 0.5}), result(target=reached(None), final={"test_accuracy": 0.831}))
    assert "no method reached 90 % in 60 steps; the closest was dpsgd with 83.1 %." in told
    target = {"metric": "loss", "value": 0.25, "step": None, "seconds": None}
    told = says(slow(target=target, final={"test_loss": 0.4}), result(target=target, final={"test_loss": 0.9}))
    assert "no method reached a loss of 0.25 in 60 steps; the closest was all-reduce with 0.4." in told


def test_one_method_alone_is_compared_with_nothing():
    assert says(result(target=reached(2.0))).endswith(
        "dpsgd reached 90 % in 2.0 s; no other method was run, so nothing is compared."
    )
    assert says(result(), failed("choco")).endswith("100 ms; no other method gave a result.")


def test_without_all_reduce_the_next_is_the_yardstick():
    told = says(result("dpsgd", target=reached(2.0)), result("choco", target=reached(4.0)))
    assert told.endswith("dpsgd reached 90 % in 2.0 s, 2.0× sooner than the next, choco (4.0 s).")
    assert "all-reduce" not in told


def test_one_that_was_looked_at_too_seldom_may_lead_but_is_ahead_of_nobody():
    seldom = Setup("here", eval_every=5)
    ran = [slow(1.0, step_s=0.2), result("dpsgd", step_s=0.04, target=reached(0.4))]
    told = says(*ran, result("choco", step_s=0.01, target=reached(0.1)), setup=seldom)
    assert told.endswith("no clear winner between them: they reached 90 % in 100 ms to 1.0 s.")


def test_without_a_target_steps_are_compared_and_that_is_said():
    results = slow(target=None), result("choco", step_s=0.09)
    assert says(*results).endswith(
        "choco's steps were the shortest: 90 ms, 11× faster than all-reduce (1.0 s); 87 % of all-reduce's step was "
        "waiting, 33 % of choco's."
    )
    assert "a method that sends less per step can need more steps" in caveats(*results)


def test_emulated_gradients_have_no_losses_worth_telling():
    emulated = Setup("here", emulated=True)
    results = slow(2.0), result(target=reached(8.0))
    assert "steps were the shortest: 100 ms" in says(*results, setup=emulated)  # though a target was set and reached
    assert "losses mean nothing here, only time is compared" in caveats(*results, setup=emulated)


def test_overlapping_spreads_have_no_winner():
    runs = [slow(time) for time in (10.0, 12.0)] + [result(target=reached(time)) for time in (9.0, 11.0)]
    assert "there is no clear winner: dpsgd and all-reduce reached 90 % in 10 to 11 s, too close" in says(*runs)
    apart = [slow(time) for time in (10.0, 11.0)] + [result(target=reached(time)) for time in (6.0, 7.0)]
    assert "dpsgd reached 90 % in 6.5 s, 1.6× sooner" in says(*apart)


def test_two_may_share_the_lead_before_all_reduce():
    runs = slow(20.0), result("dpsgd", target=reached(2.0)), result("choco", target=reached(2.06))
    assert says(*runs).endswith(
        "dpsgd and choco were the fastest, with no clear winner between them: they reached 90 % in 2.0 to 2.1 s, "
        "9.7 to 10× sooner than all-reduce (20 s); 87 % of all-reduce's step was waiting."
    )


def test_a_single_run_is_not_trusted_with_less_than_five_per_cent():
    assert "no clear winner" in says(result("dpsgd", step_s=0.100), result("choco", step_s=0.104))
    assert "no clear winner" not in says(result("dpsgd", step_s=0.100), result("choco", step_s=0.106))
    assert "no spread is known" in caveats(result())
    assert "no spread is known" not in caveats(result(), result())


def test_the_target_is_not_seen_between_two_looks():
    looks = Setup("here", steps=60, eval_every=5)  # half a second of steps
    runs = result("dpsgd", target=reached(2.0)), result("choco", target=reached(2.4))
    assert "no clear winner" in says(*runs, setup=looks)
    assert "looked at every 5 steps" in caveats(*runs, setup=looks)
    later = result("dpsgd", target=reached(2.0)), result("choco", target=reached(3.0))
    assert "dpsgd reached 90 %" in says(*later, setup=looks)
    assert "looked at" not in caveats(*later, setup=looks)


def test_a_better_all_reduce_is_the_fairer_yardstick():
    runs = slow(20.0), result("ring", target=reached(10.0)), result("choco", target=reached(2.0))
    assert "10× sooner than all-reduce (20 s; 5.0× than ring, the fastest exact all-reduce);" in says(*runs)
    slower = slow(20.0), result("ring", target=reached(30.0)), result("choco", target=reached(2.0))
    assert "10× sooner than all-reduce (20 s);" in says(*slower)
    told = says(*sweep({"allreduce": (1, 1), "ring": (0.8, 0.5), "choco": (0.9, 0.1)}))
    assert told.endswith("10× faster than all-reduce at 1 ms (5.0× than ring, the fastest exact all-reduce).")


def test_what_is_suspect_is_named():
    assert "Suspect emulation: all-reduce (suspect because)." in caveats(slow(grade="suspect"), result())
    many = [result(f"m{number}", grade="suspect") for number in range(5)]
    assert "Suspect emulation: 5 of 6 results, such as m0's (suspect because)." in caveats(*many, result("m5"))


def test_a_suspect_repeat_is_named_where_another_is_invalid():
    told = caveats(slow(), result(grade="suspect"), result(grade="invalid"))
    assert "Suspect emulation: dpsgd" in told
    assert "1 cell whose emulation was invalid" in told


def test_who_would_be_faster_on_machines_of_their_own_is_told():
    told = caveats(slow(queued=0.002), result(queued=0.072), result("choco", queued=0.2, grade="suspect"))
    assert "were ready without one for a part of the time: choco (20%) and dpsgd (7%). On machines of their own" in told
    assert "ready without one" not in caveats(slow(), result(queued=0.03))
    many = [result(f"m{number}", queued=0.06 + number / 100) for number in range(4)]
    assert "time: m3 (9%), m2 (8%), m1 (7%) and 1 more. On" in caveats(*many)


def test_what_is_left_out_is_counted():
    told = caveats(result(), result(grade="invalid"), failed("choco"), failed("choco"))
    assert "Left out: 2 cells failed, 1 cell whose emulation was invalid." in told
    assert "Left out" not in caveats(result())


def test_a_repeat_that_missed_the_target_is_told():
    runs = [slow(9.0), slow(9.5), result(target=reached(2.0)), result(target=reached(None))]
    assert "dpsgd reached the target in 1 of 2 repeats: it counts as not reached." in caveats(*runs)
    assert "no other method got there" in says(*runs)


def test_who_never_got_there_is_told():
    assert "Not reached: by choco." in caveats(slow(9.0), result("choco", target=reached(None)))
    assert "Not reached" not in caveats(slow(None), result("choco", target=reached(None)))  # the sentence says so
    runs = [
        result(method, setting=setting, target=reached(time))
        for setting in ("a", "b")
        for method, time in (("dpsgd", 1.0), ("choco", None))
    ]
    assert "Not reached: by choco (at 2 of 2)." in caveats(*runs)


def test_a_lost_worker_is_told():
    lost = [{"text": "w3 was lost in step 5 (it was killed); its neighbours went on without it"}]
    assert "dpsgd: w3 was lost in step 5" in caveats(slow(), result(lost=lost))


def test_nothing_to_tell():
    assert says() == "No cell is done yet."
    assert says(failed()) == "No method gave a result that counts: 1 cell failed."
    half = Setup("here", planned=5, done=2)
    assert caveats(result(), setup=half).endswith("3 of 5 cells have not been run.")


def sweep(times: dict[str, tuple[float, ...]]) -> list[dict[str, Any]]:
    """Seconds per step by method, at latency=0ms, 1ms, …"""
    return [
        result(method, setting=f"latency={number}ms", step_s=time)
        for method, some in times.items()
        for number, time in enumerate(some)
    ]


def test_a_sweep_tells_who_leads_where_and_the_largest_gain():
    told = says(*sweep({"allreduce": (1, 1, 1, 1), "choco": (2, 2, 0.5, 0.1)}))
    assert told == (
        "On 8 workers in a ring at 25 ms, 10 Mbit/s, all-reduce had the shortest steps at 2 of 4 networks; "
        "choco led at 2. The largest gain: choco, 10× faster than all-reduce at 3 ms."
    )


def test_a_sweep_with_shared_leads():
    told = says(*sweep({"allreduce": (1, 1, 1), "choco": (0.5, 0.5, 0.4), "dpsgd": (0.51, 0.51, 0.8)}))
    assert (
        "choco had the shortest steps at 1 of 3 networks and shared the lead at 2 more; dpsgd led at 2 (shared); "
        in told
    )
    assert "all-reduce led at none. The largest gain: choco, 2.5× faster than all-reduce at 2 ms." in told


def test_a_sweep_to_a_target_tells_where_nobody_got_there():
    results = [
        result(method, setting=f"lr={number}", target=reached(time))
        for method, times in {"allreduce": (8.0, None), "choco": (2.0, None)}.items()
        for number, time in enumerate(times)
    ]
    told = says(*results, setup=Setup("here", points="settings"))
    assert told == (
        "On here, choco reached 90 % first at 1 of 2 settings; all-reduce led at none; at 1 nobody got there. "
        "The largest gain: choco, 4.0× sooner than all-reduce at lr 0."
    )
    nobody = [{**one, "target": reached(None)} for one in results]
    assert says(*nobody) == f"On {RING.place}, no method reached 90 % at any of 2 networks."


def test_networks_that_are_not_done_have_no_leader():
    results = sweep({"allreduce": (1, 1, 1), "choco": (2, 0.5)})
    assert "at 1 of 2 networks" in says(*results)
    assert leaders(compare(results), RING) == {("latency=0ms", "allreduce"), ("latency=1ms", "choco")}


@pytest.mark.parametrize("method", ["dpsgd", "powergossip"])
def test_the_sentence_has_one_end_and_one_beginning(method):
    told = says(slow(), result(method, target=reached(41.0)))
    assert told.startswith("On ")
    assert told.endswith(".")
    assert ".." not in told


def test_nobody_leads_where_a_method_has_only_invalid_runs():
    results = sweep({"allreduce": (4.0, 4.0), "choco": (1.0, 1.0)})
    (alone,) = [one for one in results if one["method"] == "choco" and one["setting"] == results[0]["setting"]]
    alone["verdict"] = {"grade": "invalid", "reasons": ["the links were not what was asked for"]}
    told = says(*results)
    assert "choco had the shortest steps at 1 of 2" in told
    assert "1 is undecided, as some method's emulation was invalid" in told
    assert "all-reduce led at none" in told
    assert {method for _, method in leaders(compare(results), RING)} == {"choco"}
