//! Written forms that say the same as the types that the rest of the program has: of alternatives and of fields that
//! have the same names in both.

/// Two forms of the same alternatives.
macro_rules! same {
    ($written:ident, $known:ident: $($name:ident),*) => {
        impl From<$known> for $written {
            fn from(it: $known) -> Self {
                match it { $($known::$name => Self::$name),* }
            }
        }

        impl From<$written> for $known {
            fn from(it: $written) -> Self {
                match it { $($written::$name => Self::$name),* }
            }
        }
    };
}

/// Two structs with the same fields.
macro_rules! same_fields {
    ($written:ident, $known:ident: $($name:ident),* $(,)?) => {
        impl From<$known> for $written {
            fn from(it: $known) -> Self {
                let $known { $($name),* } = it;
                Self { $($name: $name.into()),* }
            }
        }

        impl From<$written> for $known {
            fn from(it: $written) -> Self {
                let $written { $($name),* } = it;
                Self { $($name: $name.into()),* }
            }
        }
    };
}
