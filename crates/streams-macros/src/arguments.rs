//! What stands in the brackets of the attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Expr, Ident, Token,
    parse::{Parse, ParseStream},
};

/// `topic = …`, and what else is said.
pub(crate) struct Arguments {
    pub(crate) topic: Expr,
    others: Vec<(Ident, Expr)>,
}

/// What may be said besides the topic: each is a call on the subscription.
const KNOWN: [&str; 6] = ["group", "consumer", "concurrency", "batch", "attempts", "ordered_by_field"];

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut topic, mut others) = (None, Vec::<(Ident, Expr)>::new());
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            let value: Expr = input.parse()?;
            if name == "topic" && topic.is_none() {
                topic = Some(value);
            } else if KNOWN.iter().any(|known| name == known)
                && !others.iter().any(|(known, _)| *known == name)
            {
                others.push((name, value));
            } else {
                let known = KNOWN.join(", ");
                let words = format!("{name} is not known here or was said before; there are topic, {known}");
                return Err(syn::Error::new(name.span(), words));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let topic =
            topic.ok_or_else(|| syn::Error::new(Span::call_site(), "say which topic: topic = \"orders\""))?;
        Ok(Self { topic, others })
    }
}

impl Arguments {
    /// The calls on the subscription.
    pub(crate) fn settings(&self) -> TokenStream {
        self.others.iter().map(|(name, value)| quote!(.#name(#value))).collect()
    }
}
