//! From a member of a set to a message.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;

use super::{
    Arguments,
    source::{BodyAt, Member, Source},
    template::id,
};
use crate::Failure;
use duly_client::wire::{DUE_MILLIS_MIN, Moment, NewMessage};

/// A member, its due time, and the message that it becomes; or why it becomes none.
pub(super) struct Read {
    pub(super) member: Member,
    pub(super) fate: Result<(u64, Box<NewMessage>), String>,
}

impl Arguments {
    /// Reads these members of a set, and their bodies if those are elsewhere.
    pub(super) async fn read(
        &self,
        source: &mut Source,
        key: &[u8],
        topic: &str,
        members: Vec<Member>,
    ) -> Result<Vec<Read>, Failure> {
        let bodies = match &self.body_key {
            None => members.iter().map(|member| Ok(member.name.clone())).collect(),
            Some(_) => self.bodies(source, key, &members).await?,
        };
        let read = |(member, body): (Member, Result<Vec<u8>, String>)| {
            let fate = body.and_then(|body| self.message(key, topic, &member, body));
            Read { member, fate }
        };
        Ok(members.into_iter().zip(bodies).map(read).collect())
    }

    async fn bodies(
        &self,
        source: &mut Source,
        key: &[u8],
        members: &[Member],
    ) -> Result<Vec<Result<Vec<u8>, String>>, Failure> {
        let place = |member: &Member| {
            let fill = |template: &super::Template| template.fill(self.stripped(key), &member.name);
            let key = self.body_key.as_ref().map(fill).unwrap_or_default();
            match &self.body_field {
                Some(field) => BodyAt::Field(key, fill(field)),
                None => BodyAt::Key(key),
            }
        };
        let places: Vec<_> = members.iter().map(place).collect();
        let found = source.bodies(&places).await?;
        let body = |(place, found): (&BodyAt, Result<Option<Vec<u8>>, String>)| match found {
            Ok(Some(body)) => Ok(body),
            Ok(None) => Err(format!("its body is not there: {}", shown(place))),
            Err(why) => Err(format!("its body cannot be read: {}: {why}", shown(place))),
        };
        Ok(places.iter().zip(found).map(body).collect())
    }

    fn message(
        &self,
        key: &[u8],
        topic: &str,
        member: &Member,
        body: Vec<u8>,
    ) -> Result<(u64, Box<NewMessage>), String> {
        let due = self.unit.due(member.score)?;
        let mut message = NewMessage {
            topic: topic.to_owned(),
            sink: self.sink.clone(),
            id: Some(id(key, &member.name, member.score)),
            deliver_at: Some(moment(due)),
            ..NewMessage::default()
        };
        match String::from_utf8(body) {
            Ok(text) if self.json => {
                let json = RawValue::from_string(text).map_err(|e| format!("its body is not JSON: {e}"))?;
                if json.get() == "null" {
                    return Err("its body is null, which in JSON is none".into());
                }
                message.json = Some(json);
            }
            Ok(text) => message.body = Some(text),
            Err(_) if self.json => return Err("its body is not JSON: it is not UTF-8".into()),
            Err(bytes) => message.body_base64 = Some(STANDARD.encode(bytes.as_bytes())),
        }
        Ok((due, Box::new(message)))
    }
}

/// Long overdue is what it is here, and no mistake: written as a time it is not taken for seconds.
fn moment(due: u64) -> Moment {
    if due < DUE_MILLIS_MIN {
        Moment::Text(duly::Timestamp::from_millis(due).to_string())
    } else {
        Moment::Millis(due)
    }
}

fn shown(place: &BodyAt) -> String {
    match place {
        BodyAt::Key(key) => format!("key {}", String::from_utf8_lossy(key)),
        BodyAt::Field(key, field) => {
            format!("field {} of {}", String::from_utf8_lossy(field), String::from_utf8_lossy(key))
        }
    }
}
