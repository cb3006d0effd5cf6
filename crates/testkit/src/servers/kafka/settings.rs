//! The broker's own configuration.

use super::{Kafka, LIMITED, PASSWORD, SECOND, USER, WEAK};

impl Kafka {
    /// `server.properties`: one node, six listeners, little of everything.
    pub(super) fn settings(&self) -> String {
        let data = self.file("data").display().to_string();
        let (plain, controller) = (self.program.port(), self.program.port() + SECOND);
        let (guarded, behind_proxy) = (self.guarded.port(), self.guarded.port() + SECOND);
        let (tls, both) = (self.secure.port(), self.secure.port() + SECOND);
        let mutual = self.mutual.port();
        let keys = self.file("both.pem").display().to_string();
        let trusted = self.clients.authority().display().to_string();
        let outside = |proxied: u16| {
            format!(
                "PLAIN://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded},PROXIED://127.0.0.1:{proxied},\
                 TLS://127.0.0.1:{tls},BOTH://127.0.0.1:{both},MUTUAL://127.0.0.1:{mutual}"
            )
        };
        let (bound, advertised) = (outside(behind_proxy), outside(self.proxy.port()));
        let users = [USER, WEAK, LIMITED].map(|name| format!("user_{name}=\"{PASSWORD}\"")).join(" ");
        let module = "org.apache.kafka.common.security";
        format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             inter.broker.listener.name=PLAIN\n\
             listeners={bound},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners={advertised}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT,\
             GUARDED:SASL_PLAINTEXT,TLS:SSL,BOTH:SASL_SSL,MUTUAL:SSL\n\
             listener.name.mutual.ssl.client.auth=required\n\
             listener.name.mutual.ssl.truststore.type=PEM\n\
             listener.name.mutual.ssl.truststore.location={trusted}\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n\
             listener.name.guarded.plain.sasl.jaas.config={module}.plain.PlainLoginModule required {users};\n\
             listener.name.both.plain.sasl.jaas.config={module}.plain.PlainLoginModule required {users};\n\
             listener.name.guarded.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;\n\
             listener.name.both.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={keys}\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS;User:{USER};User:CN=client\n\
             log.dirs={data}\n\
             message.max.bytes=2097152\n\
             auto.create.topics.enable=false\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.num.partitions=1\n\
             transaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             num.network.threads=1\n\
             num.io.threads=2\n\
             background.threads=2\n\
             log.cleaner.enable=false\n"
        )
    }
}
