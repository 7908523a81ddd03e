//! Decimal numbers as text, exactly.

use arrow_buffer::i256;

/// The number that a text gives in units of 10^-scale; an error says why there is none.
///
/// Texts are a sign, digits with at most one point among them, and an exponent.
pub(crate) fn parse(text: &str, precision: u8, scale: i8) -> Result<i256, String> {
    let none = || format!("{text:?} is no decimal number");
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i64>().map_err(|_| none())?),
        None => (text, 0),
    };
    let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_number = unsigned.bytes().any(|byte| byte.is_ascii_digit())
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(none());
    }
    let digits: Vec<u8> = whole
        .bytes()
        .chain(fraction.bytes())
        .skip_while(|digit| *digit == b'0')
        .collect();
    let kept = digits
        .iter()
        .rposition(|digit| *digit != b'0')
        .map_or(0, |last| last + 1);
    if kept == 0 {
        return Ok(i256::ZERO);
    }
    let dropped = i64::try_from(digits.len() - kept).unwrap_or(i64::MAX);
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    // digits[..kept] * 10^power is the number in units of the scale
    let power = exponent
        .saturating_sub(places)
        .saturating_add(dropped)
        .saturating_add(i64::from(scale));
    if power < 0 {
        return Err(format!("{text} has more than {scale} decimal places"));
    }
    let count = power.saturating_add(i64::try_from(kept).unwrap_or(i64::MAX));
    if count > i64::from(precision) {
        return Err(format!("{text} has more than {precision} digits"));
    }
    let ten = i256::from_i128(10);
    let zeros = usize::try_from(power).unwrap_or_default();
    let number = digits[..kept]
        .iter()
        .chain(std::iter::repeat_n(&b'0', zeros))
        .fold(i256::ZERO, |number, digit| {
            number
                .wrapping_mul(ten)
                .wrapping_add(i256::from_i128(i128::from(digit - b'0')))
        });
    Ok(if mantissa.starts_with('-') {
        number.wrapping_neg()
    } else {
        number
    })
}
