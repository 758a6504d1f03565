"""A user's CSV file may have gaps, marks for missing values, longitudes and latitudes."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.boundary.csv_measurements import marked
from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs import robot_team_v0
from swarmbo_envs.fields.landscape import build_field


@pytest.fixture
def table(tmp_path):
    def write(rows, header="x,y,v", **more):
        path = tmp_path / "own.csv"
        path.write_text("\n".join([header, *[",".join(map(str, row)) for row in rows]]) + "\n")
        x, y, v = header.split(",")[:3]
        return {"csv": str(path), "x": x, "y": y, "value": v, **more}

    return write


WHOLE = [(0, 0, 5.0), (100, 0, 6.5), (0, 100, 7.0), (100, 100, 4.25)]


def test_rows_with_gaps_and_marks_are_left_out_and_counted_by_reason(table):
    rows = [*WHOLE, (50, 50, ""), (50, 60, "NA"), (60, 50, -9999), (70, 50, -9999), ("", 10, 5.0), (80, 80, "1e20")]
    with pytest.warns(DataWarning) as caught:
        field = build_field(table(rows), 100)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("$.field.csv: 6 of 10 rows of ")
    reasons = "1 without a number in 'x'; 2 without a number in 'v'; 2 with -9999 in 'v'; 1 with 1e+20 in 'v'"
    assert reasons in str(caught[0].message)
    np.testing.assert_array_equal(field.sites, np.array(WHOLE)[:, :2])
    assert (field.minimum, field.maximum) == (4.25, 7.0)


def test_a_row_without_its_time_is_left_out_of_the_sites_too(table):
    rows = [(x, y, v, t) for x, y, v in WHOLE for t in (0, 1)] + [(50, 50, 6.0, ""), (60, 60, 6.0, -999)]
    given = table(rows, header="x,y,v,t", time="t")
    with pytest.warns(DataWarning, match=r"2 of 10 rows .*: 1 without a number in 't'; 1 with -999 in 't'"):
        field = build_field(given, 100, moving=True)
    assert len(field.sites) == 4
    assert len(field.at(1).value(field.sites)) == 4


def test_complete_data_give_no_warning(table):
    for values in ([5.0, 6.5, 7.0, 4.25], [-999.0, -2000.0, 300.0, 0.0], [9999.0, 12000.0, 100.0, 3.0]):
        rows = [(x, y, v) for (x, y, _), v in zip(WHOLE, values, strict=True)]
        assert build_field(table(rows), 100).maximum == max(values)


def test_a_mark_that_could_be_a_measurement_is_kept_with_a_warning(table):
    rows = [*[(x, y, 100 * v - 600) for x, y, v in WHOLE], (50, 50, -300)]
    rows[0] = (0, 0, -999)
    rows.append((60, 60, 900))
    with pytest.warns(DataWarning, match=r"holds -999 in 1 of 6 rows\. .* missing = \[-999\] leaves it out"):
        field = build_field(table(rows), 100)
    assert field.minimum == -999
    with pytest.warns(DataWarning, match=r"1 of 6 rows .*: 1 with -999 in 'v'$"):
        assert build_field(table(rows, missing=[-999]), 100).minimum == -300


def test_only_stated_marks_are_missing_values(table):
    rows = [*WHOLE, (50, 50, -9999), (60, 60, 77)]
    assert build_field(table(rows, missing=[]), 100).minimum == -9999
    with pytest.warns(DataWarning, match=r"1 with 77 in 'v'$"):
        assert build_field(table(rows, missing=[77]), 100).minimum == -9999


MARKS = [-99, -999, -9999, -99999, -999.9, -99.99, -32768, -2147483648]


@given(st.sampled_from(MARKS), st.lists(st.integers(0, 10**6).map(lambda whole: whole + 0.5), min_size=1, max_size=9))
def test_in_nonnegative_values_every_usual_mark_is_found(mark, values):
    found = marked(np.array([*values, mark, np.nan, mark]), None, is_coordinate=False)
    assert np.flatnonzero(found[0]).tolist() == [len(values), len(values) + 2]
    assert not found[1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.sampled_from([*MARKS, 999, 9999, 99999]))
def test_a_number_within_the_range_of_the_other_values_is_never_a_mark(values, mark):
    values = [*values, mark - 1.5, mark + 1.5]
    found = marked(np.array([*values, mark]), None, is_coordinate=False)
    assert not found[0][-1]


@given(st.floats(100.0, 1e6), st.floats(1.6, 2.9))
def test_a_large_value_is_not_taken_for_a_mark(top, times):
    """It may be the sought maximum: 9999 counts as a mark only from three times the range of the other values."""
    low = 9999.0 - times * 1000.0
    found = marked(np.array([low - 1000.0, low, 9999.0]), None, is_coordinate=False)
    assert not found[0].any()
    assert found[1] == {9999.0: 1}
    assert marked(np.array([1.0, 2.0, 9999.0]), None, is_coordinate=False)[0].tolist() == [False, False, True]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_number_at_its_usual_distance_from_the_others_is_no_mark(sign):
    series = sign * np.arange(9900, 10000) / 10.0
    assert not marked(series, None, is_coordinate=True)[1]
    gone = series[:-30]
    assert marked(np.append(gone, series[-1]), None, is_coordinate=True)[1] == {sign * 999.9: 1}


@pytest.mark.parametrize(
    ("values", "is_coordinate"),
    [
        ([0] * 5 + [600] * 5 + [999] * 3, False),
        ([10, 400, 650, 999, 999, 999, 999], False),
        ([-5000, 6000, -9999, -9999, -9999], False),
        ([*range(900, 999), 999, 999], False),  # repeated
        ([0, 1000, -999], True),  # too few others to tell what distance is usual
    ],
)
def test_a_repeated_number_and_one_among_few_others_may_be_a_mark(values, is_coordinate):
    assert list(marked(np.array(values, dtype=float), None, is_coordinate=is_coordinate)[1]) == [values[-1]]


LON, LAT = [5.72, 5.74, 5.76, 5.7512], [50.95, 50.98, 50.9601, 50.9712]


@pytest.mark.parametrize(
    ("header", "sign"),
    [
        ("lon,lat,v", 1),
        ("Longitude,Latitude,v", -1),
        ("decimalLongitude,decimalLatitude,v", 1),
        ("LON_WGS84,LAT_WGS84,v", 1),
        ("x_deg,y_deg,v", -1),
        ("x [°],y [°],v", 1),
    ],
)
@pytest.mark.parametrize("sites", ["only", "interpolated"])
def test_longitudes_and_latitudes_are_recognised_by_the_names_of_columns(table, header, sign, sites):
    rows = [(sign * x, sign * y, v) for x, y, v in zip(LON, LAT, (1.0, 2.0, 3.0, 4.0), strict=True)]
    with pytest.warns(DataWarning, match=r"\$\.field\.coordinates: .* taken for degrees, and projected to metres"):
        field = build_field(table(rows, header, sites=sites), 100)
    # lengths of a degree at 50.97 degrees north by the ellipsoid's radii of curvature: 70,276 m and 111,239 m
    np.testing.assert_allclose(field.high - field.low, [0.04 * 70_276, 0.03 * 111_239], rtol=2e-3)
    np.testing.assert_allclose(field.low, 0.0, atol=1e-6)
    assert field.coordinates is not None
    back = field.coordinates.projection.degrees(field.argmax[None])[0]
    if sites == "only":
        np.testing.assert_allclose(back, [sign * LON[3], sign * LAT[3]], atol=1e-9)


def test_stated_degrees_are_projected_without_a_warning_and_repeated_places_averaged(table):
    rows = [(5.72, 50.95, 1.0), (5.76, 50.98, 2.0), (5.72, 50.95, 3.0)]
    field = build_field(table(rows, "a,b,v", coordinates="degrees"), 100)
    assert len(field.sites) == 2
    assert field.value(field.sites).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("rows", "header", "more", "message"),
    [
        (
            [(50.9, 5.7, 1), (51, 5.8, 2)],
            "lat,lon,v",
            {},
            r"x: got 'lat', a latitude; .*=lon --set .*field.y=lat",
        ),
        (
            [(5.7, 5650610.5, 1), (5.8, 5650611, 2)],
            "lon,lat,v",
            {},
            r"y: .*own\.csv: line 2, column 'lat': got 5650610\.5, which is",
        ),
        (
            [(700, 5, 1), (5.8, 5, 2)],
            "a,b,v",
            {"coordinates": "degrees"},
            r"x: .*own\.csv: line 2, column 'a': got 700, which",
        ),
        (
            [(5.72134, 50.95441, 1), (5.74512, 50.97123, 2), (5.7391, 50.96, 3)],
            *("x,y,v", {}),
            "coordinates: .* look like longitudes and latitudes; wanted --set .*coordinates=degrees, or ",
        ),
        ([(1, 2, 3), (2, 3, 4)], "x,y,v", {"coordinates": "feet"}, "coordinates: got 'feet'"),
        ([(1, 2, 3), (2, 3, 4)], "x_km,y_km,v", {"x": "x_km", "y": "y_km"}, "coordinates: .* in km; wanted metres"),
        ([(1, 2, 3), (2, 3, 4)], "x_km,y_km,v", {}, "coordinates: .* in km; wanted metres"),
        ([(1, 2, 3), (2, 3, 4)], "x (ft),y (ft),v", {"x": "x (ft)", "y": "y (ft)"}, "coordinates: .* in ft; wanted"),
    ],
)
def test_inconsistent_coordinates_are_refused_with_a_fix(table, rows, header, more, message):
    with pytest.raises(ConfigError, match=rf"\$\.field\.{message}") as error:
        build_field(table(rows, header, **more), 100)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("header", "scale", "more"),
    [
        ("x,y,v", 1.0, {}),
        ("lon_m,lat_m,v", 1.0, {}),
        ("along,across,v", 0.01, {}),
        ("lon,lat,v", 0.5, {"coordinates": "metres"}),
        ("x_km,y_km,v", 0.5, {"x": "x_km", "y": "y_km", "coordinates": "metres"}),
    ],
)
def test_coordinates_in_metres_are_not_projected(table, header, scale, more):
    """Also on small plots, and if "lon" is only a part of a column's name."""
    generator = np.random.default_rng(2)
    places = generator.uniform(0, 80, size=(12, 2)) * scale
    field = build_field(table([(x, y, 1.0) for x, y in places], header, **more), 100)
    np.testing.assert_array_equal(field.sites, places)
    assert field.coordinates is None


def sites_file(folder, header, *, degrees):
    rng, path = np.random.default_rng(0), folder / "soil.csv"
    places = np.array([7.0, 50.0]) + 0.02 * rng.random((30, 2)) if degrees else 1000.0 * rng.random((30, 2))
    rows = [f"{x:.6f},{y:.6f},{5.0 + rng.random():.2f},{n % 7}" for n, (x, y) in enumerate(places)]
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return str(path)


@pytest.mark.filterwarnings("ignore::swarmbo.errors.DataWarning")
@pytest.mark.parametrize(
    ("header", "degrees"),
    [
        ("lon,lat,ph,depth_cm", True),
        ("Longitude,Latitude,ph,depth_cm", True),
        ("decimalLongitude,decimalLatitude,ph,n", True),
        ("lon,lat,ph,x_error", True),  # an error is not a coordinate
        ("lon,lat,x,ph", True),  # an x without a y is not a pair
        ("x,y,ph,depth_cm", False),
        ("X_UTM,Y_UTM,ph,depth_cm", False),
        ("Easting (m),Northing (m),ph,depth_cm", False),
        ("east,north,ph,depth_cm", False),
    ],
)
def test_columns_of_coordinates_are_recognised_without_being_named(tmp_path, header, degrees):
    path, (x, y, *_) = sites_file(tmp_path, header, degrees=degrees), header.split(",")
    named = robot_team_v0.parallel_env(field={"csv": path, "value": "ph", "x": x, "y": y})
    found = robot_team_v0.parallel_env(field={"csv": path, "value": "ph"})
    np.testing.assert_array_equal(found.unwrapped.sites(), named.unwrapped.sites())
    assert (found.unwrapped.field.coordinates is not None) == degrees


@pytest.mark.parametrize(
    ("header", "fixes"),
    [
        ("a,b,ph,n", ["--set environment.field.x=COLUMN", "--set environment.field.y=COLUMN"]),
        ("lon,lon_deg,ph,lat", ["'lon', 'lat' and 'lon_deg', 'lat'", "x=lon", "y=lat"]),
        ("x,b,ph,n", ["columns x, b, ph, n", "x=COLUMN"]),
    ],
)
def test_if_no_columns_or_several_may_be_coordinates_the_user_must_name_them(tmp_path, header, fixes):
    settings = {"csv": sites_file(tmp_path, header, degrees=True), "value": "ph"}
    with pytest.raises(ConfigError) as caught:
        robot_team_v0.parallel_env(field=settings)
    assert caught.value.at == "$.field.x"
    assert all(fix in caught.value.message for fix in fixes)


def test_two_pairs_of_coordinates_are_ambiguous_and_one_stated_column_decides(tmp_path):
    path = tmp_path / "both.csv"
    rows = ["lon,lat,x_m,y_m,ph", "7.1,50.1,10,20,5.1", "7.2,50.2,30,90,5.2", "7.3,50.1,70,50,5.3"]
    path.write_text("\n".join(rows), encoding="utf-8")
    field = {"csv": str(path), "value": "ph"}
    with pytest.raises(ConfigError, match=r"--set environment\.field\.x=lon --set environment\.field\.y=lat"):
        robot_team_v0.parallel_env(robots=2, field=field)
    for stated in ({"x": "x_m", "y": "y_m"}, {"x": "x_m"}, {"y": "y_m"}):
        env = robot_team_v0.parallel_env(robots=2, field={**field, **stated})
        assert sorted(env.unwrapped.sites().tolist()) == [[10.0, 20.0], [30.0, 90.0], [70.0, 50.0]]
