"""Faults of brokers and their controller, and what an administrator does to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.chaos import harms
from tests.chaos.fault import Fault
from tests.chaos.routes import by_proxies, by_the_front_door, by_their_own_addresses
from tests.chaos.stage import MIN_IN_SYNC, PARTITIONS
from tests.support.full_log_folder import fill_log_folder
from tests.support.java_peer import now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.chaos.fault import Injection, Route
    from tests.chaos.scene import Scene

_GROUP: Final = "brokers"
_ADMIN: Final = "administration"
_NAPS: Final = 15


def _broker(
    name: str,
    inject: Injection,
    *,
    route: Route = by_proxies,
    short: bool = False,
    spool: bool = False,
    own_sidecar: bool = False,
    restarts_killed: bool = False,
) -> Fault:
    return Fault(
        name,
        _GROUP,
        inject,
        route,
        short=short,
        spool=spool,
        kills_brokers=restarts_killed,
        own_sidecar=own_sidecar,
    )


def _kill_until_elected(scene: Scene) -> None:
    victim = scene.leader
    scene.kafka.kill(victim)
    scene.admin.wait_for_leader_other_than(scene.topic, 0, victim)


def _lead_alone_and_die(scene: Scene) -> None:
    """What the leader alone has is lost with it: acks=all must not have acknowledged any of that."""
    victim = scene.leader
    followers = [broker_id for broker_id in scene.kafka.broker_ids if broker_id != victim]
    for follower in followers:
        scene.kafka.pause(follower)
    try:
        scene.hold(2)
        scene.kafka.kill(victim)
    finally:
        for follower in followers:
            scene.kafka.resume(follower)
    scene.admin.wait_for_leader_other_than(scene.topic, 0, victim)


def _kill_follower(scene: Scene) -> None:
    followers = [broker_id for broker_id in scene.kafka.broker_ids if broker_id != scene.leader]
    scene.kafka.kill(scene.random.choice(followers))
    scene.hold(3)


def _kill_and_restart_at_once(scene: Scene) -> None:
    victim = scene.leader
    scene.kafka.kill(victim)
    scene.kafka.restart(victim)


def _kill_two(scene: Scene) -> None:
    victims = scene.random.sample(scene.kafka.broker_ids, 2)
    for victim in victims:
        scene.kafka.kill(victim)
    scene.hold(3)
    for victim in victims:
        scene.kafka.restart(victim)


def _kill_all(scene: Scene) -> None:
    for broker_id in scene.kafka.broker_ids:
        scene.kafka.kill(broker_id)
    scene.hold(2)
    for broker_id in scene.kafka.broker_ids:
        scene.kafka.restart(broker_id)


def _pause_until_elected(scene: Scene) -> None:
    victim = scene.leader
    scene.kafka.pause(victim)
    try:
        scene.admin.wait_for_leader_other_than(scene.topic, 0, victim)
    finally:
        scene.kafka.resume(victim)


def _pause_each(scene: Scene) -> None:
    for broker_id in scene.kafka.broker_ids:
        scene.kafka.pause(broker_id)
        scene.hold(2)
        scene.kafka.resume(broker_id)


def _run_a_leader_slowly(scene: Scene) -> None:
    """Gray: it is alive to the controller, and mostly asleep."""
    victim = scene.leader
    for _ in range(_NAPS):
        scene.kafka.pause(victim)
        scene.hold(0.25)
        scene.kafka.resume(victim)
        scene.hold(0.05)


def _stop_leader(scene: Scene) -> None:
    scene.kafka.stop(scene.leader)
    scene.hold(2)


def _rolling_restart(scene: Scene) -> None:
    for broker_id in scene.kafka.broker_ids:
        scene.kafka.stop(broker_id)
        scene.kafka.restart(broker_id)
        scene.admin.wait_until_in_sync(scene.topic)


def _rolling_kill(scene: Scene) -> None:
    for broker_id in scene.kafka.broker_ids:
        scene.kafka.kill(broker_id)
        scene.kafka.restart(broker_id)
        scene.admin.wait_until_in_sync(scene.topic)
        # The next broker may lead a partition since a moment. Which client had a success by then is chance.
        # That decides whether its gap is one session timeout or two.
        scene.hold(3)


def _kill_leader_without_controller(scene: Scene) -> None:
    victim = scene.leader
    scene.kafka.kill_controller()
    scene.kafka.kill(victim)
    scene.hold(3)
    scene.kafka.restart_controller()
    scene.admin.wait_for_leader_other_than(scene.topic, 0, victim)


def _move_all_brokers(scene: Scene) -> None:
    scene.cluster.move_all_brokers()


def _move_each_broker(scene: Scene) -> None:
    for broker_id in scene.kafka.broker_ids:
        scene.kafka.restart(broker_id, new_port=True)
        scene.admin.wait_until_in_sync(scene.topic)


def _elect_preferred(scene: Scene) -> None:
    victim = scene.leader
    scene.kafka.stop(victim)
    scene.kafka.restart(victim)
    scene.admin.wait_until_in_sync(scene.topic)
    scene.admin.elect_preferred_leaders(scene.topic)


def _move_leaders(scene: Scene) -> None:
    for partition in range(PARTITIONS):
        scene.admin.move_leader(scene.topic, partition)


def _add_partitions(scene: Scene) -> None:
    scene.admin.add_partitions(scene.topic, total=PARTITIONS + 3)
    scene.wait_for_successes(each=5)


def _recreate_topic(scene: Scene) -> None:
    scene.admin.delete_topic(scene.topic)
    scene.hold(1)
    scene.admin.create_topic(
        scene.topic,
        partitions=PARTITIONS,
        replication_factor=3,
        config={"min.insync.replicas": str(MIN_IN_SYNC)},
    )
    scene.kept_since_ms = now_ms()


def _refuse_size(scene: Scene) -> None:
    scene.admin.set_topic_config(scene.topic, "max.message.bytes", "100")
    scene.wait_for_failures(413, count=5)
    scene.admin.set_topic_config(scene.topic, "max.message.bytes", "1048588")


def _ask_for_all_replicas(scene: Scene) -> None:
    scene.admin.set_topic_config(scene.topic, "min.insync.replicas", "3")
    victim = next(b for b in scene.kafka.broker_ids if b != scene.leader)
    scene.kafka.stop(victim)
    scene.hold(3)
    scene.admin.set_topic_config(scene.topic, "min.insync.replicas", str(MIN_IN_SYNC))


def _fail_disk(scene: Scene) -> None:
    victim = scene.leader
    scene.kafka.fail_disk(victim)
    wait_until(lambda: not scene.kafka.is_running(victim), what="the broker without a disk has ended")
    scene.hold(3)


def _fill_one_of_two_log_folders(scene: Scene) -> None:
    victim = scene.leader
    fill_log_folder(scene.kafka, victim, scene.topic, 0)
    scene.hold(3)
    scene.kafka.stop(victim)


FAULTS: Final = (
    _broker("kill -9 of a leader whose followers are stalled", _lead_alone_and_die, short=True),
    _broker("kill -9 of a leader, until another is elected", _kill_until_elected),
    _broker("kill -9 of a leader, with the spool", _kill_until_elected, spool=True),
    _broker(
        "kill -9 of a leader, back before anybody is elected", _kill_and_restart_at_once, restarts_killed=True
    ),
    _broker("kill -9 of a follower", _kill_follower),
    _broker("kill -9 of two of three brokers, both back", _kill_two, restarts_killed=True),
    _broker("kill -9 of all brokers, all back", _kill_all, restarts_killed=True),
    _broker("kill -9 of all brokers, all back, with the spool", _kill_all, spool=True, restarts_killed=True),
    _broker(harms.PAUSED_LEADER.name, harms.PAUSED_LEADER.held(4)),
    _broker("SIGSTOP of a leader until another is elected, SIGCONT", _pause_until_elected),
    _broker("SIGSTOP and SIGCONT of each broker in turn", _pause_each),
    _broker(harms.PAUSED_BROKERS.name, harms.PAUSED_BROKERS.held(4)),
    _broker("a leader that sleeps five sixths of the time", _run_a_leader_slowly),
    _broker("a leader stopped in order", _stop_leader),
    _broker("rolling restart in order", _rolling_restart),
    _broker("rolling restart by kill -9", _rolling_kill, restarts_killed=True),
    _broker(harms.KILLED_CONTROLLER.name, harms.KILLED_CONTROLLER.held(3)),
    _broker(harms.PAUSED_CONTROLLER.name, harms.PAUSED_CONTROLLER.held(4)),
    _broker("kill -9 of the controller and a leader, the controller back", _kill_leader_without_controller),
    _broker("a leader's disks fail, and the broker ends", _fail_disk),
    _broker("one of a leader's two disks is full, and the broker lives on", _fill_one_of_two_log_folders),
    Fault("election of preferred leaders by an admin", _ADMIN, _elect_preferred, by_proxies),
    Fault("all leaders moved by an admin", _ADMIN, _move_leaders, by_proxies),
    Fault("partitions added", _ADMIN, _add_partitions, by_proxies),
    Fault("topic deleted and made again", _ADMIN, _recreate_topic, by_proxies),
    Fault("records too large for the topic for a while", _ADMIN, _refuse_size, by_proxies),
    Fault("min.insync.replicas not met for a while", _ADMIN, _ask_for_all_replicas, by_proxies),
)

#: Played last: the addresses of all that was started before are gone with them.
MOVES: Final = (
    _broker(
        "each broker moved to another port in turn",
        _move_each_broker,
        route=by_their_own_addresses,
        own_sidecar=True,
        restarts_killed=True,
    ),
    _broker(
        "all brokers moved to other ports at once",
        _move_all_brokers,
        route=by_the_front_door,
        own_sidecar=True,
        restarts_killed=True,
    ),
)
