"""Counts and their Prometheus text."""

from prometheus_client.parser import text_string_to_metric_families

from pipo.telemetry.metrics import Family, Histogram, Sample, render


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    sample = histogram.snapshot()
    assert sample.counts == (2, 3)
    assert (sample.count, sample.sum) == (4, 12.0)


def test_what_is_rendered_can_be_parsed() -> None:
    histogram = Histogram([0.5])
    histogram.observe(0.1)
    text = render(
        [
            Family("pipo_a_total", "counter", "As.", [Sample(3, {"pipeline": 'we "q"\n'})]),
            Family("pipo_b", "gauge", "Bs.", [Sample(1.5), Sample(2, {"node": "n"})]),
            Family(
                "pipo_c_seconds", "histogram", "Cs.", [Sample(histogram.snapshot(), {"x": "y"})]
            ),
            Family("pipo_none", "gauge", "Nothing.", []),
        ]
    ).decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    assert set(families) == {"pipo_a", "pipo_b", "pipo_c_seconds"}
    assert families["pipo_a"].type == "counter"
    assert families["pipo_a"].samples[0].labels == {"pipeline": 'we "q"\n'}
    assert [s.value for s in families["pipo_b"].samples] == [1.5, 2]
    found = {(s.name, s.labels.get("le")): s.value for s in families["pipo_c_seconds"].samples}
    assert found["pipo_c_seconds_bucket", "0.5"] == 1
    assert found["pipo_c_seconds_bucket", "+Inf"] == 1
    assert found["pipo_c_seconds_sum", None] == 0.1
