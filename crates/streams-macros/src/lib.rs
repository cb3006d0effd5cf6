//! The attribute macro of `duly-streams`. It is documented there.

mod arguments;

use arguments::Arguments;
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{FnArg, GenericArgument, ItemFn, PathArguments, Type, parse_macro_input, spanned::Spanned};

/// Makes of a function a consumer that can be subscribed by its name. See `duly_streams::consumer`.
#[proc_macro_attribute]
pub fn consumer(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as Arguments);
    let function = parse_macro_input!(item as ItemFn);
    expand(&arguments, &function).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(arguments: &Arguments, function: &ItemFn) -> syn::Result<Tokens> {
    let signature = &function.sig;
    if !signature.generics.params.is_empty() {
        let words = "a consumer has no type parameters: it is subscribed by its name alone";
        return Err(syn::Error::new(signature.generics.span(), words));
    }
    let inputs: Vec<_> = signature.inputs.iter().collect();
    let (input, state) = match inputs.as_slice() {
        [FnArg::Typed(input)] => (input, None),
        [FnArg::Typed(input), FnArg::Typed(state)] => (input, Some(&state.ty)),
        _ => {
            let words = "a consumer takes Entry<T>, or Vec<Entry<T>> for a batch, and after it its state if it has one";
            return Err(syn::Error::new(signature.span(), words));
        }
    };
    let kind = match (signature.asyncness.is_some(), is_many(&input.ty)) {
        (true, false) => quote!(each),
        (false, false) => quote!(blocking),
        (true, true) => quote!(batch),
        (false, true) => quote!(blocking_batch),
    };
    let (name, visibility) = (&signature.ident, &function.vis);
    let documentation = function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let others: Vec<_> =
        function.attrs.iter().filter(|attribute| !attribute.path().is_ident("doc")).collect();
    let (topic, settings) = (&arguments.topic, arguments.settings());
    let body = ItemFn { attrs: Vec::new(), vis: syn::Visibility::Inherited, ..function.clone() };
    let entry = &input.ty;
    let consumer = match state {
        None => quote! {
            impl ::duly_streams::Consumer for #name {
                fn subscription(&self, streams: &::duly_streams::Streams) -> ::duly_streams::Subscription {
                    #(#others)*
                    #body
                    streams.listener(#topic, ::duly_streams::Handler::#kind(#name)) #settings
                }
            }
        },
        Some(state) => quote! {
            impl #name {
                /// The consumer, with its state, which is cloned for every call.
                #visibility fn with(
                    self,
                    state: #state,
                ) -> impl ::duly_streams::Consumer + ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync {
                    #(#others)*
                    #body
                    move |streams: &::duly_streams::Streams| {
                        let state = ::core::clone::Clone::clone(&state);
                        let handler = move |entry: #entry| #name(entry, ::core::clone::Clone::clone(&state));
                        streams.listener(#topic, ::duly_streams::Handler::#kind(handler)) #settings
                    }
                }
            }
        },
    };
    Ok(quote! {
        #(#documentation)*
        #[expect(non_camel_case_types, reason = "it is the function, as a consumer")]
        #[derive(Debug, Clone, Copy)]
        #visibility struct #name;

        #consumer
    })
}

/// Whether the argument is a `Vec` of entries.
fn is_many(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    let PathArguments::AngleBracketed(inside) = &last.arguments else { return false };
    last.ident == "Vec" && matches!(inside.args.first(), Some(GenericArgument::Type(Type::Path(_))))
}
