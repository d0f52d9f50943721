"""A rolling upgrade from an earlier version, and back, under load and in any order, so processes of both versions mix.
The earlier version has created the namespace, its messages, the ACL users of the server and the tokens.
"""

import json
import os
import random
from datetime import timedelta
from pathlib import Path

import pytest

from services.valkey import ValkeyServer
from tests.support.wait_until import eventually
from tests.upgrade.last_resort_steps import leave_shards_to_programs, restart_event_processes, upgrade_programs
from tests.upgrade.lease_steps import change_back, change_to_lease
from tests.upgrade.mixed_deployment import PRESENT, Component, MixedDeployment, run_program, wait_for_drivers
from tests.upgrade.progress import has_progressed
from tests.upgrade.upgrade_producer import BULK_DUE
from tickwheel import Queue, Tickwheel
from tickwheel.doctor import LIVE_PASSES, audit

pytestmark = pytest.mark.fault

TIMEOUT = timedelta(seconds=30)
QUEUES = ("jobs", "videos", "tasks")
TOKENS = {"producer": '["produce"]', "consumer": '["consume", "produce", "admin"]'}


def create_users(earlier: str, folder: Path) -> dict[str, str]:
    """Write the server's ACL file with the users of the earlier version. Return the passwords by user."""
    output = run_program(earlier, "-m", "tickwheel", "acl", "--json", folder=folder).stdout
    users = json.loads(output)
    rules = [user["rule"] for user in users]
    (folder / "users.acl").write_text("\n".join(["user default on nopass ~* &* +@all", *rules]) + "\n")
    return {user["user"]: user["password"] for user in users}


def create_tokens(earlier: str, folder: Path) -> dict[str, str]:
    """Write the file of tokens with the entries of the earlier version. Return the tokens by name."""
    tokens, entries = {}, []
    for name, roles in TOKENS.items():
        printed = json.loads(run_program(earlier, "-m", "tickwheel", "token", name, "--json", folder=folder).stdout)
        tokens[name] = printed["token"]
        entries.append(f'[[token]]\nname = "{name}"\nsha256 = "{printed["sha256"]}"\nroles = {roles}\n')
    path = folder / "tokens.toml"
    path.write_text("".join(entries))
    path.chmod(0o600)
    return tokens


def replace_all(deployment: MixedDeployment, client: Tickwheel, site: str, chance: random.Random) -> None:
    """Replace every process by one of another version, in a random order, and wait for progress after each.

    In the end, the other version must drive every shard.
    """
    components = deployment.components
    chance.shuffle(components)
    for component in components:
        component.replace(site)
        eventually(has_progressed(deployment), f"messages are finished after {component.name} was replaced", 60, 0.02)
        drivers = wait_for_drivers(deployment.event_processes, client)
    assert drivers == {site}


@pytest.mark.parametrize("is_present", [False, True], ids=["earlier", "present"])
def test_an_event_process_that_has_just_started_ends_in_an_orderly_manner(
    earlier: str, tmp_path: Path, is_present: bool
) -> None:
    with ValkeyServer("valkey", tmp_path, {"appendonly": "no"}) as server:
        environment = {"TICKWHEEL_URL": server.url}
        events = Component("events", ("-m", "tickwheel", "events"), tmp_path / "events", environment, ready="")
        events.start(PRESENT if is_present else earlier)
        events.stop()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("bulk", "changes_twice"),
    [
        pytest.param(20_000, False, id="20000"),
        pytest.param(20_000, True, id="20000-twice", marks=pytest.mark.soak),
        pytest.param(1_000_000, True, id="1000000", marks=pytest.mark.soak),
    ],
)
def test_every_message_is_completed_while_all_processes_are_upgraded_and_downgraded(
    earlier: str, tmp_path: Path, bulk: int, changes_twice: bool
) -> None:
    """With ``changes_twice``, the election changes from the present version to leases and back, and then from the
    earlier version, in the other order. Otherwise, one of the two is chosen at random, and the standby changes first:
    the test of workers and services that may drive has the other order.
    """
    seed = int(os.environ["TICKWHEEL_TEST_SEED"])
    print(f"TICKWHEEL_TEST_SEED={seed}")
    chance = random.Random(seed)
    users, tokens = create_users(earlier, tmp_path), create_tokens(earlier, tmp_path)
    settings = {"aclfile": str(tmp_path / "users.acl"), "appendonly": "no"}
    with (
        ValkeyServer("valkey", tmp_path, settings) as server,
        MixedDeployment(tmp_path, server, users, tokens) as deployment,
    ):
        deployment.create(earlier, bulk)
        for component in deployment.components:
            component.start(earlier)
        eventually(has_progressed(deployment), "the earlier version finishes messages", 60)
        with Tickwheel(server.url, drive=False) as client:
            assert wait_for_drivers(deployment.event_processes, client) == {earlier}
            replace_all(deployment, client, PRESENT, chance)
            leader_first = changes_twice and chance.random() < 0.5
            from_present = changes_twice or chance.random() < 0.5
            if from_present:
                change_to_lease(deployment, client, leader_first=leader_first)
                change_back(deployment, client, PRESENT, chance)
            replace_all(deployment, client, earlier, chance)
            if changes_twice or not from_present:
                # From the earlier version directly.
                change_to_lease(deployment, client, leader_first=changes_twice and not leader_first)
                change_back(deployment, client, earlier, chance)

        complete_all(deployment, server, bulk)
        doctor = run_program(earlier, "-m", "tickwheel", "doctor", "--json", folder=tmp_path, url=server.url)
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
        for component in deployment.event_processes:
            component.stop()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    "leader_first",
    [pytest.param(True, id="leader-first"), pytest.param(False, id="standby-first", marks=pytest.mark.soak)],
)
def test_workers_and_services_that_may_drive_can_be_upgraded_before_the_event_processes(
    earlier: str, tmp_path: Path, leader_first: bool
) -> None:
    seed = int(os.environ["TICKWHEEL_TEST_SEED"])
    print(f"TICKWHEEL_TEST_SEED={seed}")
    chance, bulk = random.Random(seed), 5_000
    tokens = create_tokens(earlier, tmp_path)
    with (
        ValkeyServer("valkey", tmp_path, {"appendonly": "no"}) as server,
        MixedDeployment(tmp_path, server, {}, tokens) as deployment,
    ):
        deployment.create(earlier, bulk)
        for component in deployment.components:
            component.start(earlier)
        eventually(has_progressed(deployment), "the earlier version finishes messages", 60)
        with Tickwheel(server.url, drive=False) as client:
            assert wait_for_drivers(deployment.event_processes, client) == {earlier}
            upgrade_programs(deployment, client, chance)
            restart_event_processes(deployment, client)
            assert wait_for_drivers(deployment.event_processes, client) == {earlier}
            # The last event process of the earlier version ends here, and its log has the reason.
            change_to_lease(deployment, client, leader_first=leader_first)
            leave_shards_to_programs(deployment, client, chance)
        complete_all(deployment, server, bulk)
        doctor = run_program(PRESENT, "-m", "tickwheel", "doctor", "--json", folder=tmp_path, url=server.url)
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
        for component in deployment.event_processes:
            component.stop()


def complete_all(deployment: MixedDeployment, server: ValkeyServer, bulk: int) -> None:
    """End the load and all processes but the event processes. Check that every message was completed, and once."""
    for component in deployment.producers:
        component.stop()
    with Tickwheel(deployment.direct_url, timeout=TIMEOUT) as client:
        queues = {name: client.queue(name) for name in QUEUES}
        late = [f"bulk-{n}" for n in range(bulk) if n % 10 >= BULK_DUE]
        queues["jobs"].cancel_many(late)
        eventually(lambda: not any(map(unfinished, queues.values())), "every message is finished", 600, 0.1)
    for component in (*deployment.consumers, *deployment.workers, *deployment.services):
        component.stop()

    done, sent = deployment.count("done"), deployment.count("sent")
    sent.update(("jobs", f"bulk-{n}") for n in range(bulk) if n % 10 < BULK_DUE)
    assert len(sent) > bulk * BULK_DUE / 10 + 500
    assert not sent.keys() - done.keys(), "acknowledged messages were not completed"
    assert {message for message in done if done[message] > 1} == set(), "messages were completed twice"
    with Tickwheel(server.url, drive=False) as client:
        assert client._run(audit(client._context, passes=LIVE_PASSES)) == []


def unfinished(queue: Queue) -> int:
    counts = queue.counts()
    return counts["invisible"] + counts["pending"] + counts["running"]
