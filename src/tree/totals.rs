//! What all tensors of a model come to, for people.

use serde_json::{Map, Value};

/// Counts tensors and their elements by type.
#[derive(Debug, Default)]
pub(super) struct Totals<'a> {
    tensors: u64,
    parameters: u64,
    /// Of each type, how many tensors and how many elements have it.
    types: Vec<(&'a str, u64, u64)>,
}

impl<'a> Totals<'a> {
    /// Adds a tensor.
    pub(super) fn add(&mut self, dtype: &'a str, elements: u64) {
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(elements);
        match self.types.iter_mut().find(|(known, ..)| *known == dtype) {
            Some((_, tensors, all)) => (*tensors, *all) = (*tensors + 1, all.saturating_add(elements)),
            None => self.types.push((dtype, 1, elements)),
        }
    }

    /// Returns the type that most elements have.
    pub(super) fn largest(&self) -> Option<&'a str> {
        self.types.iter().max_by_key(|(.., elements)| *elements).map(|(dtype, ..)| *dtype)
    }

    /// Returns the lines of an overview.
    pub(super) fn front(mut self) -> Map<String, Value> {
        self.types.sort_by_key(|(_, tensors, _)| std::cmp::Reverse(*tensors));
        let types = self.types.iter().map(|(dtype, tensors, _)| format!("{dtype} ({tensors})"));
        let types = types.collect::<Vec<_>>().join(", ");
        let mut front = Map::new();
        front.insert("tensors".into(), self.tensors.into());
        front.insert("parameters".into(), rounded(self.parameters).into());
        if !types.is_empty() {
            front.insert("types".into(), types.into());
        }
        front
    }
}

/// Returns a count as people say it: `7.2 B`.
fn rounded(count: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")];
    match units.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rounded_as_people_say_them() {
        let counts = [0, 999, 1000, 7_241_732_096, 671_026_419_200, 1_500_000_000_000];
        assert_eq!(counts.map(rounded), ["0", "999", "1.0 K", "7.2 B", "671.0 B", "1.5 T"]);
    }
}
