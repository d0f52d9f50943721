"""The alerts of `deploy/prometheus-rules.yaml` use metrics and labels that programs export, and the operations page
describes all of them.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import HistogramMetricFamily

from tests.unit.test_metrics import LABELLED, PAGE, name_of
from tickwheel.event_process.metrics import METRICS

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
FILE = "deploy/prometheus-rules.yaml"
GROUPS: list[dict[str, Any]] = yaml.safe_load((ROOT / FILE).read_text())["groups"]
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
# The labels of each sample that a program exports, by its name. Prometheus adds `instance` and `job`.
SAMPLES = {
    f"{name_of(spec)}{suffix}": {*spec.labels, *(["le"] if suffix == "_bucket" else [])}
    for specs in (METRICS, *LABELLED.values())
    for spec in specs
    for suffix in (("_bucket", "_sum", "_count") if spec.family is HistogramMetricFamily else ("",))
}
SELECTOR = re.compile(r"(tickwheel_\w+)(?:\{([^}]*)\})?")


def labels(names: str) -> set[str]:
    return {name.strip() for name in names.split(",")}


def test_every_alert_has_a_name_of_its_own() -> None:
    assert len(RULES) == sum(len(group["rules"]) for group in GROUPS)
    assert len({group["name"] for group in GROUPS}) == len(GROUPS)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_an_alert_has_the_fields_of_a_rule(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Tickwheel[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}
    for opening, closing in ("()", "{}", "[]"):
        assert rule["expr"].count(opening) == rule["expr"].count(closing)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_an_alert_uses_only_metrics_and_labels_that_programs_export(rule: dict[str, Any]) -> None:
    selectors = SELECTOR.findall(rule["expr"])
    assert selectors
    for metric, conditions in selectors:
        assert metric in SAMPLES
        assert set(re.findall(r"(\w+)=", conditions)) <= SAMPLES[metric]
        for grouped_by in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
            assert labels(grouped_by) <= SAMPLES[metric]
    # The labels of the result are those by which it is grouped. Prometheus adds `instance` to results of one process.
    grouped = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
    of_result = {label for names in grouped for label in labels(names)} if grouped else {"instance"}
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= of_result


def test_the_operations_page_names_the_file_and_describes_every_alert() -> None:
    assert f"](../{FILE})" in PAGE
    advice = PAGE.partition("\nRecommended alerts")[2].partition("\n### ")[0]
    described = set(re.findall(r"tickwheel_\w+", advice))
    alerts = {metric for rule in RULES.values() for metric, _ in SELECTOR.findall(rule["expr"])}
    assert {metric.removesuffix("_bucket") for metric in alerts} == described
