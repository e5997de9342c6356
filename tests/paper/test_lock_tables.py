import numpy as np
import pytest
from sample_runs import key, made_up_run

from fle.paper.lock_runs import (
    FILES,
    Table,
    aggregate,
    all_checks,
    full_tables,
    published,
    short_table,
)

FLOOR = published("1d", "tv").floor


def test_means_and_standard_errors_by_hand():
    # 0.1, 0.2, 0.6: mean 0.3, deviations -0.2, -0.1, 0.3, variance 0.14/2, error sqrt(0.07/3).
    values = (0.1, 0.2, 0.6)
    runs = [made_up_run(key(seed=i), tv=v, seconds=10 * i) for i, v in enumerate(values)]
    column = aggregate(runs[::-1], "1d", "tv")["gmm", "ours"]
    assert column.seeds == (0, 1, 2)
    assert np.allclose(column.means, 0.3)
    assert np.allclose(column.standard_errors, np.sqrt(0.07 / 3))
    assert column.seconds == pytest.approx(10)


def test_one_seed_has_no_standard_error():
    column = aggregate([made_up_run(key(), tv=0.25)], "1d", "tv")["gmm", "ours"]
    assert np.isnan(column.standard_errors).all()
    table = short_table({("gmm", "ours"): column}, "1d", "tv", "")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["gmm, ours"] == ("0.250", "0.250", "0.250", "1", "10")


def test_w1_of_quantiles_comes_from_runs_of_its_own():
    runs = [
        made_up_run(key(method="quantile", preset="paper"), tv=0.6, w1=0.5),
        made_up_run(key("1d-w1", "quantile", "paper"), tv=0.9, w1=0.1),
    ]
    pair = "quantile", "paper"
    assert np.allclose(aggregate(runs, "1d", "tv")[pair].means, 0.6)
    assert np.allclose(aggregate(runs, "1d", "w1")[pair].means, 0.1)
    assert aggregate(runs, "2d", "tv") == {}


def test_short_table_shows_published_presets_and_floor():
    runs = [made_up_run(key(preset=p, seed=s)) for p in ("ours", "paper") for s in range(2)]
    table = short_table(aggregate(runs, "1d", "tv"), "1d", "tv", "")
    assert table.header == ("", "h = 1", "h = 10", "h = 19", "seeds", "seconds")
    names = [row[0] for row in table.rows]
    assert names == ["gmm, published", "gmm, paper", "gmm, ours", "sampling floor"]
    assert table.rows[0][1:4] == ("0.039 ± 0.004", "0.044 ± 0.012", "0.018 ± 0.008")
    assert table.rows[3][1] == "0.0134"


def test_full_tables_have_every_step():
    runs = [made_up_run(key("2d", method)) for method in ("gmm", "flow")]
    gmm, flow = full_tables(aggregate(runs, "2d", "tv"), "2d", "tv", "")
    assert [row[0] for row in gmm.rows] == [str(h) for h in range(1, 11)]
    assert gmm.rows[0][1] == "0.438 ± 0.008"
    assert flow.rows[0][1] == "-"


def test_text_is_aligned_and_markdown_has_all_cells():
    table = Table("Title", ("", "a", "bb"), (("row", "1", "22"), ("longer row", "333", "4")))
    lines = table.text().splitlines()
    assert lines[0] == "Title"
    assert lines[-2:] == ["row           1  22", "longer row  333   4"]
    assert "| longer row | 333 | 4 |" in table.markdown()


def judged(runs):
    pairs = (("1d", "tv"), ("1d", "w1"), ("2d", "tv"))
    columns = {pair: aggregate(runs, *pair) for pair in pairs}
    return {check.statement.split(" within")[0]: check.holds for check in all_checks(columns)}


def test_checks_hold_at_the_floor_and_fail_above():
    good = judged([made_up_run(key(), tv=1.29 * FLOOR, w1=0.019)])
    # Published W1 at h = 20 is 0.004, below 0.019.
    assert [name for name, holds in good.items() if not holds] == [
        "1d: ours, gmm at least as good as published in W1 at every h"
    ]
    bad = judged([made_up_run(key(), tv=1.31 * FLOOR, w1=0.021)])
    assert not bad["1d: ours, GMM at most 1.3 × the sampling floor in TV"]
    assert not bad["1d: ours, GMM at most 0.02 in W1"]


def test_paper_preset_is_judged_within_two_standard_errors():
    # h = 1, 10, 19 of the published GMM: 0.039, 0.044, 0.018 with errors 0.004, 0.012, 0.008; one
    # seed adds none of its own, so 0.0465 is within at h = 1 and 0.0485 is not.
    name = "1d: paper preset, gmm matches or beats the published TV"
    tv = np.full(20, 0.01)
    tv[0] = 0.0465
    assert judged([made_up_run(key(preset="paper"), tv=tv)])[name]
    tv[0] = 0.0485
    assert not judged([made_up_run(key(preset="paper"), tv=tv)])[name]


def test_vector_checks_use_the_best_model():
    floor = published("2d", "tv").floor
    limits = np.where(np.arange(10) < 5, 1.3, 1.6)
    runs = [
        made_up_run(key("2d", "flow"), tv=0.99 * limits * floor),
        made_up_run(key("2d", "diffusion"), tv=2.01 * floor),
    ]
    answers = judged(runs)
    assert answers.pop("2d: ours, diffusion at most 2 × the sampling floor") is False
    assert all(answers.values())
    assert any("best model (flow)" in name for name in answers)


def test_tables_are_those_of_the_paper():
    # Spot checks against the printed tables 1 and 2.
    one = published("1d", "tv")
    assert one.means["gmm"][[0, 9, 18]] == pytest.approx([0.039, 0.044, 0.018])
    assert one.standard_errors["quantile"][[0, 9, 18]] == pytest.approx([0.011, 0.018, 0.019])
    assert published("2d", "tv").means["diffusion"][9] == pytest.approx(0.143)
    assert published("1d", "w1").means["categorical"][0] == pytest.approx(0.056)


@pytest.mark.parametrize(("experiment", "distance"), FILES)
def test_every_step_has_a_mean_an_error_and_a_floor(experiment, distance):
    table = published(experiment, distance)
    steps = {"1d": 20, "2d": 10}[experiment]
    methods = ["categorical", "diffusion", "gmm"]
    assert sorted(set(table.means) - {"quantile"}) == methods
    assert ("quantile" in table.means) == (experiment == "1d")
    for values in (*table.means.values(), *table.standard_errors.values(), table.floor):
        assert values.shape == (steps,)
        assert np.all((values > 0) & (values < 1))
