//! Dates and times as text by ISO 8601, for every value of Arrow's types.
//!
//! A year outside of 0000 to 9999 has a sign and at least four digits, as in `java.time` (`+10000-01-01`, `-0001-12-31`).

use std::fmt::Write;

use arrow_schema::TimeUnit;

const SECONDS_OF_A_DAY: i128 = 86_400;

/// Units in a second.
pub(crate) const fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Days since 1970 of `YYYY-MM-DD`.
pub(crate) fn date(text: &str) -> Option<i64> {
    let (days, rest) = leading_date(text.as_bytes())?;
    rest.is_empty().then_some(days)
}

/// Units since midnight of `hh`, `hh:mm`, `hh:mm:ss` or with a fraction of as many digits as the unit has.
pub(crate) fn time(text: &str, unit: TimeUnit) -> Option<i64> {
    let (units, rest) = leading_time(text.as_bytes(), unit)?;
    rest.is_empty().then_some(units)
}

/// Units since 1970 of a date, or a date and a time with a `T` or a blank between them. A time may have a zone, `Z`, `+hh`, `+hhmm` or `+hh:mm`.
pub(crate) fn timestamp(text: &str, unit: TimeUnit) -> Option<i64> {
    let (days, rest) = leading_date(text.as_bytes())?;
    let (units, zone) = match rest {
        [] => (0, 0),
        [b'T' | b' ', time @ ..] => {
            let (units, rest) = leading_time(time, unit)?;
            (units, zone(rest)?)
        }
        _ => return None,
    };
    let seconds = i128::from(days) * SECONDS_OF_A_DAY - i128::from(zone);
    i64::try_from(seconds * i128::from(per_second(unit)) + i128::from(units)).ok()
}

/// Seconds before UTC.
fn zone(text: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match text {
        [] | [b'Z'] => return Some(0),
        [sign, a, b] => (sign, [*a, *b], [b'0'; 2]),
        [sign, a, b, c, d] | [sign, a, b, b':', c, d] => (sign, [*a, *b], [*c, *d]),
        _ => return None,
    };
    let seconds = two(&hours, 24)? * 3600 + two(&minutes, 60)? * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// Two digits, below `end`.
fn two(digits: &[u8], end: i64) -> Option<i64> {
    let [tens, ones] = digits else { return None };
    if !tens.is_ascii_digit() || !ones.is_ascii_digit() {
        return None;
    }
    Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0')).filter(|number| *number < end)
}

fn leading_date(text: &[u8]) -> Option<(i64, &[u8])> {
    let has_sign = matches!(text.first(), Some(b'+' | b'-'));
    let digits = text[usize::from(has_sign)..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let is_year = if has_sign {
        (4..=18).contains(&digits)
    } else {
        digits == 4
    };
    if !is_year {
        return None;
    }
    let (year, rest) = text.split_at(usize::from(has_sign) + digits);
    let year: i64 = std::str::from_utf8(year).ok()?.parse().ok()?;
    let (month_and_day, rest) = rest.split_first_chunk::<6>()?;
    let [b'-', m0, m1, b'-', d0, d1] = month_and_day else {
        return None;
    };
    let month = two(&[*m0, *m1], 13).filter(|month| *month > 0)?;
    let day = two(&[*d0, *d1], 32).filter(|day| *day > 0 && *day <= days_of(year, month))?;
    Some((days_since_1970(year, month, day), rest))
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// By H. Hinnant, "chrono-Compatible Low-Level Date Algorithms": the year begins in March, so that the leap day is its last.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Units since midnight, and what follows.
fn leading_time(text: &[u8], unit: TimeUnit) -> Option<(i64, &[u8])> {
    let (hours, mut rest) = text.split_at_checked(2)?;
    let mut seconds = two(hours, 24)? * 3600;
    let mut fraction = 0;
    if let [b':', minutes @ ..] = rest {
        let (minutes, after) = minutes.split_at_checked(2)?;
        seconds += two(minutes, 60)? * 60;
        rest = after;
        if let [b':', whole @ ..] = rest {
            let (whole, after) = whole.split_at_checked(2)?;
            seconds += two(whole, 60)?;
            rest = after;
            if let [b'.', digits @ ..] = rest {
                let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let mut scale = per_second(unit);
                for digit in &digits[..count] {
                    if scale == 1 {
                        return None;
                    }
                    scale /= 10;
                    fraction += i64::from(digit - b'0') * scale;
                }
                if count == 0 {
                    return None;
                }
                rest = &digits[count..];
            }
        }
    }
    Some((seconds * per_second(unit) + fraction, rest))
}

/// Appends the date that is so many days after 1970-01-01.
pub(crate) fn write_date(days: i64, out: &mut String) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let sign = if year < 0 {
        "-"
    } else if year > 9999 {
        "+"
    } else {
        ""
    };
    // a String takes everything
    let _ = write!(out, "{sign}{:04}-{month:02}-{day:02}", year.abs());
}

/// Appends the time of day, if it is one: less than 24 hours after midnight.
pub(crate) fn write_time(units: i64, unit: TimeUnit, out: &mut String) -> Option<()> {
    let (seconds, fraction) = (units.div_euclid(per_second(unit)), units.rem_euclid(per_second(unit)));
    if !(0..86_400).contains(&seconds) {
        return None;
    }
    let _ = write!(
        out,
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    let digits = per_second(unit).ilog10() as usize;
    if fraction != 0 {
        let _ = write!(out, ".{fraction:0digits$}");
    }
    Some(())
}

/// Appends a timestamp; with a `Z` if it is in UTC.
pub(crate) fn write_timestamp(units: i64, unit: TimeUnit, in_utc: bool, out: &mut String) {
    let per_day = 86_400 * per_second(unit);
    write_date(units.div_euclid(per_day), out);
    out.push('T');
    let _ = write_time(units.rem_euclid(per_day), unit, out);
    if in_utc {
        out.push('Z');
    }
}
