//! Which formats there are, and which of them are shown as folders: the user's choice, as in `--formats`.

use parking_lot::Mutex;

use super::{FORMATS, Format, Formats};

/// Why a list of formats is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No format has that name.
    #[error("no format is called '{name}'; there are {}", names(known_formats()))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Some names have a sign and some have none.
    #[error("either all names begin with + or -, to change the default, or none does, to name the formats")]
    Mixed,
    /// It names nothing.
    #[error("no format is named; there are {}", names(known_formats()))]
    Empty,
}

/// The formats that programs have added, in order.
static ADDED: Mutex<Vec<&'static Format>> = Mutex::new(Vec::new());

/// Adds a format of the program's own to those that the process knows, for as long as it runs. Volumes that are opened
/// from then on show its files as folders, and a list can name it, as the formats of this crate. If several formats
/// accept a file, it comes last. Adding a format again changes nothing.
pub fn add_format(format: &'static Format) {
    let mut added = ADDED.lock();
    if !added.iter().any(|known| std::ptr::eq(*known, format)) {
        added.push(format);
    }
}

/// Returns all formats that the process knows: those of this crate, then those that were added.
pub fn known_formats() -> Formats {
    let added = ADDED.lock().clone();
    interned(FORMATS.into_iter().chain(added).collect())
}

/// Returns the formats that are shown unless the user says otherwise.
pub fn default_formats() -> Formats {
    interned(known_formats().iter().copied().filter(|format| format.is_default).collect())
}

/// Returns the formats that a list means: names separated by commas, or names with `+` or `-` in front, which are added
/// to the default or removed from it.
///
/// # Errors
/// [`ChoiceError`].
pub fn choose(list: &str) -> Result<Formats, ChoiceError> {
    let words: Vec<&str> = list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let is_signed = |word: &&str| word.starts_with(['+', '-']);
    let signed = words.iter().copied().filter(|word| is_signed(word)).count();
    let mut chosen = match (words.len(), signed) {
        (0, _) => return Err(ChoiceError::Empty),
        (_, 0) => Vec::new(),
        (all, signed) if all == signed => default_formats().to_vec(),
        _ => return Err(ChoiceError::Mixed),
    };
    for word in words {
        let name = word.trim_start_matches(['+', '-']);
        let known = known_formats().iter().copied().find(|format| format.name.eq_ignore_ascii_case(name));
        let format = known.ok_or_else(|| ChoiceError::Unknown { name: name.into() })?;
        match word.starts_with('-') {
            true => chosen.retain(|other| *other != format),
            false => chosen.push(format),
        }
    }
    Ok(interned(known_formats().iter().copied().filter(|format| chosen.contains(format)).collect()))
}

/// Returns the names of formats, joined by commas. A format in files and in folders is named once.
pub fn names(formats: &[&Format]) -> String {
    let mut names: Vec<_> = formats.iter().map(|format| format.name).collect();
    names.dedup();
    names.join(", ")
}

/// Returns a choice that is kept as long as the process. There are few different ones.
fn interned(choice: Vec<&'static Format>) -> Formats {
    static CHOICES: Mutex<Vec<Formats>> = Mutex::new(Vec::new());
    // By address: two programs' formats may have one name.
    let is_choice = |known: &[&'static Format]| {
        known.len() == choice.len() && known.iter().zip(&choice).all(|(known, own)| std::ptr::eq(*known, *own))
    };
    if is_choice(&FORMATS) {
        return &FORMATS;
    }
    let mut choices = CHOICES.lock();
    match choices.iter().copied().find(|known| is_choice(known)) {
        Some(known) => known,
        None => {
            let choice: Formats = choice.leak();
            choices.push(choice);
            choice
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str) -> Result<String, String> {
        choose(list).map(names).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_name_formats_or_change_the_default() {
        // In the order of the table, not of the list.
        assert_eq!(chosen("kdb, WSHARD").unwrap(), "wshard, kdb");
        let all = names(default_formats());
        assert_eq!(chosen("-idv").unwrap(), all.replace(", idv", ""));
        assert_eq!(chosen("-idv,+idv").unwrap(), all);
        assert_eq!(chosen("-idv,-kdb,+kdb").unwrap(), all.replace(", idv", ""));
        let everything: Vec<_> = FORMATS.iter().map(|format| format!("-{}", format.name)).collect();
        assert_eq!(chosen(&everything.join(",")).unwrap(), "");
    }

    #[test]
    fn what_names_no_format_is_an_error_that_lists_them() {
        assert_eq!(
            chosen("kdb,hdf4").unwrap_err(),
            format!("no format is called 'hdf4'; there are {}", names(&FORMATS))
        );
        assert!(chosen("-").unwrap_err().starts_with("no format is called ''"));
        assert!(chosen("kdb,-idv").unwrap_err().starts_with("either all names"));
        assert!(chosen(" ,").unwrap_err().starts_with("no format is named"));
    }

    #[test]
    fn a_choice_is_kept_once() {
        assert!(std::ptr::eq(choose("kdb,idv").unwrap(), choose("idv,kdb").unwrap()));
        assert!(std::ptr::eq(choose("+kdb").unwrap(), default_formats()));
    }
}
