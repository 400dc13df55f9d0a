//! Pictures of several levels by OME-Zarr (`docs/formats/zarr.md` 7.7).

use crate::format::zarr::Json;

/// Returns the paths of the levels of a group's pictures, relative to the group; none if its attributes name none.
pub(super) fn levels(attributes: &Json) -> impl Iterator<Item = &str> {
    // From version 0.5 on, everything is below one key.
    let own = attributes.get("ome").unwrap_or(attributes);
    let all = own.get("multiscales").and_then(Json::as_list).unwrap_or_default();
    let all = all.iter().filter(|picture| picture.get("axes").is_none_or(ends_with_plane));
    let levels = all.flat_map(|picture| picture.get("datasets").and_then(Json::as_list).unwrap_or_default());
    levels.filter_map(|level| level.get("path")?.as_str())
}

/// Returns whether the last two axes are those of a plane. Before version 0.4 an axis was only its name.
fn ends_with_plane(axes: &Json) -> bool {
    let name = |axis: &Json| axis.get("name").unwrap_or(axis).as_str().map(str::to_owned);
    let Some([.., y, x]) = axes.as_list() else { return false };
    name(y).as_deref() == Some("y") && name(x).as_deref() == Some("x")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::source::Unlimited;

    fn levels_of(attributes: &str) -> Vec<String> {
        let parsed = Json::parse(attributes.as_bytes(), &Unlimited).unwrap();
        levels(&parsed).map(str::to_owned).collect()
    }

    #[test]
    fn levels_are_those_of_planes() {
        let axes =
            |names: &str| format!(r#"{{"multiscales": [{{"axes": {names}, "datasets": [{{"path": "s/0"}}]}}]}}"#);
        assert_eq!(levels_of(&axes(r#"[{"name": "z"}, {"name": "y"}, {"name": "x", "type": "space"}]"#)), ["s/0"]);
        assert_eq!(levels_of(&axes(r#"["t", "y", "x"]"#)), ["s/0"]);
        assert_eq!(levels_of(&format!(r#"{{"ome": {}}}"#, axes(r#"["y", "x"]"#))), ["s/0"]);
        assert_eq!(
            levels_of(r#"{"multiscales": [{"datasets": [{"path": "0"}, {}, {"path": 1}, {"path": "1"}]}]}"#),
            ["0", "1"]
        );
        for other in ["[]", r#"["y"]"#, r#"["y", "x", "c"]"#, "3", r#"[{"name": 1}, {}]"#, r#"["x", "y"]"#] {
            assert!(levels_of(&axes(other)).is_empty(), "{other}");
        }
        for other in ["{}", r#"{"multiscales": {}}"#, r#"{"multiscales": [3]}"#, r#"{"ome": 1}"#] {
            assert!(levels_of(other).is_empty(), "{other}");
        }
    }
}
