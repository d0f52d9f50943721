"""A task, and the tasks that it sends, run in the trace of the program that sent the task."""

from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id

from tests.integration.recorded_spans import Spans, id_of, parent_of, provider_of, trace_of
from tickwheel.tasks import TaskApp
from tickwheel.testing.task_tester import TaskTester

pytestmark = pytest.mark.integration

app = TaskApp()


@app.task(queue="orders")
def order(user: int) -> None:
    mail.now(user)


@app.task(queue="mail")
async def mail(user: int) -> None:
    with trace.get_tracer("shop").start_as_current_span("smtp"):
        raise ConnectionError("no route")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with provider_of(monkeypatch) as exported:
        yield exported


def test_the_spans_and_messages_of_a_task_belong_to_the_trace_of_its_sender(
    spans: Spans, tickwheel_tasks: Callable[[TaskApp], TaskTester]
) -> None:
    tasks = tickwheel_tasks(app)
    with trace.get_tracer("shop").start_as_current_span("request") as request:
        order.now(7)
    tasks.run_due()
    process_order, process_mail = spans.one("process orders"), spans.one("process mail")
    sent_order, sent_mail, smtp = spans.one("send orders"), spans.one("send mail"), spans.one("smtp")
    traced = {trace_of(span) for span in (process_order, process_mail, sent_order, sent_mail, smtp)}
    assert traced == {format_trace_id(request.get_span_context().trace_id)}
    assert parent_of(process_order) == id_of(sent_order)
    assert parent_of(sent_mail) == id_of(process_order)
    assert parent_of(smtp) == id_of(process_mail)
    assert process_mail.kind is SpanKind.CONSUMER
    assert process_mail.status.status_code is StatusCode.ERROR
