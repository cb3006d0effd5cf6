//! Requests are JSON objects.

/// Derived code takes an array as the fields of a struct in their order: `"filter": []` would be a filter without conditions, which
/// matches every message. These types take objects only, wherever they stand. Each derives its code with `#[serde(remote = "Self")]`,
/// which this calls.
macro_rules! objects_only {
    ($($name:ident),+ $(,)?) => {
        $(
            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                    Self::serialize(self, output)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                    struct Object;
                    impl<'de> serde::de::Visitor<'de> for Object {
                        type Value = $name;
                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str("an object")
                        }
                        fn visit_map<A: serde::de::MapAccess<'de>>(self, fields: A) -> Result<$name, A::Error> {
                            $name::deserialize(serde::de::value::MapAccessDeserializer::new(fields))
                        }
                    }
                    input.deserialize_map(Object)
                }
            }
        )+
    };
}

pub(super) use objects_only;
