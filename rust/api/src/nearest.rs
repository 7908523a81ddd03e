//! The known name that a misspelt one was probably meant to be.

/// Longer than any name: it cannot be a misspelt one, and comparing costs its length times that of all names.
const TOO_LONG: usize = 100;

/// The name with the smallest edit distance from `given`, the first one of several in the order of the alphabet; `None` if none is near enough
/// for a typing error.
pub fn nearest_name<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > TOO_LONG {
        return None;
    }
    names
        .map(|known| (edit_distance(given, known), known))
        .min()
        .filter(|&(distance, known)| distance <= known.len().max(given.len()) / 2)
        .map(|(_, known)| known)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let substitution = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substitution.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
