//! Fixed-size fields of a layout.

/// The `N` bytes at `at`. Callers have checked the length; a short slice reads as zeros, never a panic.
#[inline(always)]
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
        Some(chunk) => *chunk,
        None => [0; N],
    }
}
