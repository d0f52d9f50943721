"""What commands report to a user who makes a usual error: the words of the command line, and the remedy."""

import pytest

from tests.integration.cli.command_runner import ENCODE, Run, WriteModule, document
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration


def test_a_missing_exclusive_value_is_named_by_its_option(run: Run) -> None:
    run("queue", "create", "encode", *ENCODE)
    stderr = run("explain", "encode", "film-1", code=2).stderr
    assert "pass --exclusive-value, the message's 'project'" in stderr


def test_the_error_of_a_blocked_queue_names_the_command_that_unblocks_it(run: Run) -> None:
    run("queue", "create", "jobs")
    run("queue", "block", "jobs", "--enqueue")
    assert "run `tickwheel queue unblock` to continue" in run("enqueue", "jobs", "x", code=1).stderr


def test_a_new_route_has_a_warning_and_the_most_similar_task(run: Run) -> None:
    run("queue", "create", "jobs")
    assert "'mail.send' is a new route" in run("route", "set", "mail.send", "--to", "tickwheel").stderr
    assert "new route" not in run("route", "set", "mail.send", "--to", "celery").stderr
    assert "did you mean 'mail.send'?" in run("route", "set", "mail.sent", "--to", "tickwheel").stderr


def test_the_app_of_a_route_must_have_the_task(run: Run, write_module: WriteModule) -> None:
    write_module(
        "route_hints_shop",
        "from tickwheel.tasks import TaskApp\napp = TaskApp()\n@app.task(name='mail.send')\ndef send() -> None: ...\n",
    )
    run("queue", "create", "jobs")
    set_route = ("route", "set", "--to", "tickwheel", "--app", "route_hints_shop:app")
    assert "has no task 'mail.sent' (did you mean 'mail.send'?)" in run(*set_route, "mail.sent", code=2).stderr
    assert "new route" not in run(*set_route, "mail.send").stderr
    assert list(document(run("route", "list", "--json"))) == ["mail.send"]


def test_a_route_of_a_task_that_stays_with_celery_has_a_warning(run: Run, write_module: WriteModule) -> None:
    write_module(
        "staying_shop",
        "from celery import Celery\nfrom tickwheel.celery import migrate\nfrom tickwheel.tasks import TaskApp\n"
        "celery, app = Celery('shop'), TaskApp()\nmigrate(celery, app)\n"
        "@celery.task(name='mail.send', rate_limit='10/m')\ndef send() -> None: ...\n"
        "@celery.task(name='mail.read')\ndef read() -> None: ...\n"
        "@celery.task(name='mail.list', queue='a:b')\ndef list_() -> None: ...\n",
    )
    run("queue", "create", "jobs")
    set_route = ("route", "set", "--app", "staying_shop:app", "--to")
    staying = run(*set_route, "tickwheel", "mail.send").stderr
    assert "'mail.send': the route is stored, and has no effect for this task (written to " in staying
    assert "go to tickwheel" not in staying
    assert (
        "'mail.send' stay with Celery whatever the route is: it has the rate_limit 10/m; to route it without this"
        " setting, pass migrate(…, carries_over={'mail.send'})" in staying
    )
    assert "stay with Celery" not in run(*set_route, "celery", "mail.send").stderr
    assert "has no effect for this task" in run(*set_route, "celery", "mail.send", "--share", "0.5").stderr
    moved = run(*set_route, "tickwheel", "mail.read").stderr
    assert "'mail.read': all calls go to tickwheel" in moved
    assert "stay with Celery" not in moved
    warning = run(*set_route, "tickwheel", "mail.list").stderr
    assert "its queue cannot move" in warning
    assert "set another name: migrate(…, queues={'a:b': …})" in warning


def test_doctor_accepts_a_longer_timeout_and_warns_of_a_server_that_forgets(run: Run, cli_client: Tickwheel) -> None:
    findings = {
        finding["check"]: finding for finding in document(run("doctor", "--timeout", "60s", "--quick", "--json"))
    }
    assert findings["durability"]["verdict"] == "warning"
    assert "set `appendonly yes`" in findings["durability"]["text"]
    assert "timeout must be from 1 ms to 10 min, not 1 hour" in run("doctor", "--timeout", "1h", code=2).stderr
    assert "timeout must be from 1 ms to 30 s, not 1 min" in run("counts", "--timeout", "60s", code=2).stderr
