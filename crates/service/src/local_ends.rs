//! Links of this machine that a get or a copy goes out by: those of the request, else of the configuration.

use towpath_api::{ApiError, ErrorKind};
use towpath_plugins::direct::{LocalEnd, NoLocalEnd};

use crate::state::Service;

/// The links of these names, or those of the configuration if there are none. One that is not there now is refused by its
/// name, as it is most likely mistyped, and borne in the configuration.
pub(crate) fn local_ends(service: &Service, named: &[String]) -> Result<Vec<LocalEnd>, ApiError> {
    if named.is_empty() {
        return Ok(service.config().general.bind.clone());
    }
    let usage = |message: String| ApiError::new(ErrorKind::Usage, message);
    let end = |text: &String| {
        let end: LocalEnd = text.parse().map_err(|error: NoLocalEnd| usage(error.to_string()))?;
        match end.is_there() {
            true => Ok(end),
            false => Err(usage(format!("this machine has no interface or address '{end}' now"))),
        }
    };
    named.iter().map(end).collect()
}
