//! A text as a QR picture for a terminal: two rows of its squares are one line, of half blocks. Drawn light on dark.

use qrcode::{Color, EcLevel, QrCode};
use towpath_api::{ApiError, ErrorKind};

/// Light squares around the picture, as ISO 18004 asks for.
const MARGIN: usize = 4;

/// The squares of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QrPicture {
    width: usize,
    /// True for dark ones, row by row.
    squares: Vec<bool>,
}

impl QrPicture {
    /// The picture of `text`; an error if there is none that fits `columns` of a terminal.
    pub fn new(text: &str, columns: usize) -> Result<Self, ApiError> {
        let too_long = |why: String| {
            let message = format!("no QR picture: {} characters {why}", text.len());
            ApiError::new(ErrorKind::Usage, message).hint("with --code the picture is that of a short code")
        };
        // A screen is seen clearly: the fewest squares matter more than damage.
        let code = QrCode::with_error_correction_level(text, EcLevel::L);
        let code = code.map_err(|_| too_long("are more than one can hold".into()))?;
        let squares = code.to_colors().into_iter().map(|color| color == Color::Dark).collect();
        let picture = Self { width: code.width(), squares };
        match picture.columns() {
            needed if needed <= columns => Ok(picture),
            needed => Err(too_long(format!("need {needed} columns of a terminal, which has {columns}"))),
        }
    }

    /// Columns that it takes.
    pub const fn columns(&self) -> usize {
        self.width + 2 * MARGIN
    }

    /// Its lines.
    pub fn lines(&self) -> Vec<String> {
        let line = |row: usize| (0..self.columns()).map(|column| self.block(row, column)).collect();
        (0..self.columns()).step_by(2).map(line).collect()
    }

    /// The character for a square and the one below it. What is light is drawn.
    fn block(&self, row: usize, column: usize) -> char {
        match (self.is_dark(row, column), self.is_dark(row + 1, column)) {
            (false, false) => '█',
            (false, true) => '▀',
            (true, false) => '▄',
            (true, true) => ' ',
        }
    }

    fn is_dark(&self, row: usize, column: usize) -> bool {
        let inside = |at: usize| at.checked_sub(MARGIN).filter(|at| *at < self.width);
        inside(row).zip(inside(column)).is_some_and(|(row, column)| self.squares[row * self.width + column])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a picture as a camera sees it.
    fn read(lines: &[String]) -> String {
        const SIZE: usize = 4;
        let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
        let is_light = |row: usize, column: usize| {
            let halves = if row.is_multiple_of(2) { ['█', '▀'] } else { ['█', '▄'] };
            halves.contains(&lines[row / 2][column])
        };
        let (width, height) = (lines[0].len() * SIZE, lines.len() * 2 * SIZE);
        let pixel = |x: usize, y: usize| if is_light(y / SIZE, x / SIZE) { 255 } else { 0 };
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(width, height, pixel);
        image.detect_grids()[0].decode().unwrap().1
    }

    #[test]
    fn tickets_and_codes_are_read_from_their_pictures() {
        let ticket = format!("tow:{}", "aq2v7z6yax3hrgteakwlocwubfvil".repeat(9));
        for (text, columns) in [("tow get 7-otter-lagoon", 33), (&ticket[..182], 57), (&ticket, 65)] {
            let picture = QrPicture::new(text, 80).unwrap();
            assert_eq!(picture.columns(), columns, "{} characters", text.len());
            assert_eq!(read(&picture.lines()), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert!(QrPicture::new(&"a".repeat(425), 80).is_ok());
        let refused = QrPicture::new(&"a".repeat(426), 80).unwrap_err().message;
        assert_eq!(refused, "no QR picture: 426 characters need 81 columns of a terminal, which has 80");
        assert!(QrPicture::new(&"a".repeat(426), 81).is_ok());
        assert!(
            QrPicture::new(&"a".repeat(3000), 1000).unwrap_err().message.contains("more than one can hold")
        );
    }
}
