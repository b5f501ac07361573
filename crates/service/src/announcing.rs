//! How a get announces what comes, if others may read it: in the store, where whoever serves looks.

use std::sync::Arc;

use towpath_store::Store;
use towpath_transfer::{Announcing, BoundSink};

use crate::getting::{GetUnderWay, relayed_binding};

/// How a file is announced that others may read while it comes; `None` if nobody may.
pub(crate) fn announcing(get: &GetUnderWay) -> Option<Announcing> {
    let store = Arc::clone(&get.service.store) as Arc<dyn Store>;
    let announcing = || Announcing { bound: Some(bound_sink(get)), ..Announcing::until_whole(store) };
    get.passes_on().then(announcing)
}

/// Notes what a live object became, for whoever asks here. Not if this machine has that from elsewhere: it did not come by the
/// ticket then.
pub(crate) fn bound_sink(get: &GetUnderWay) -> BoundSink {
    let (service, oid, node) = (Arc::clone(&get.service), get.oid, get.context.node);
    Arc::new(move |statement, signature| {
        let said = (statement.to_bytes().into(), signature.to_vec().into());
        let binding = node.and_then(|node| relayed_binding(&oid, &node, said));
        if let Some(binding) = binding.filter(|binding| !service.store.is_here(&binding.content)) {
            service.grants.bind(&oid, binding);
        }
    })
}
