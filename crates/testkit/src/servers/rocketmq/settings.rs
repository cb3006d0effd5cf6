//! The configuration of both.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{PROXIED, Rocketmq};

impl Rocketmq {
    /// A certificate, its key, and where both servers find them.
    pub(super) fn write_keys(&self) {
        let names = ["127.0.0.1".to_owned(), PROXIED.to_string()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (self.certificate(), self.broker.folder().join("key.pem"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let text = format!(
            "tls.test.mode.enable=false\ntls.server.need.client.auth=require\ntls.server.authClient=true\n\
             tls.server.trustCertPath={}\ntls.server.keyPath={}\ntls.server.certPath={}\n",
            self.clients.authority().display(),
            key.display(),
            certificate.display()
        );
        fs::write(self.tls_settings(), text).unwrap();
    }

    pub(super) fn tls_settings(&self) -> PathBuf {
        self.broker.folder().join("tls.properties")
    }

    pub(super) fn name_settings(&self) -> String {
        format!("listenPort={}\nbindAddress=127.0.0.1\n", self.namesrv.port())
    }

    pub(super) fn broker_settings(&self) -> String {
        let (port, standby, advertised) = (self.broker.port(), self.standby_port(), self.advertised());
        let mut text = format!(
            "brokerClusterName=duly\n\
             brokerName=duly\n\
             brokerId=0\n\
             brokerIP1={advertised}\n\
             namesrvAddr={}\n\
             listenPort={port}\n\
             haListenPort={standby}\n\
             autoCreateTopicEnable={}\n\
             {}",
            self.namesrv(),
            self.options.makes_topics,
            store_settings(self.broker.folder()),
        );
        if let Some((key, secret)) = &self.options.user {
            let provider = "org.apache.rocketmq.auth.authentication.provider";
            text.push_str(&format!(
                "authenticationEnabled=true\n\
                 authenticationProvider={provider}.DefaultAuthenticationProvider\n\
                 authenticationMetadataProvider={provider}.LocalAuthenticationMetadataProvider\n\
                 initAuthenticationUser={{\"username\":\"{key}\",\"password\":\"{secret}\"}}\n\
                 innerClientAuthenticationCredentials={{\"accessKey\":\"{key}\",\"secretKey\":\"{secret}\"}}\n"
            ));
        }
        for line in &self.options.more {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// Small files: as they come, they would take gigabytes. And patience: that the machine is busy is not what is tested.
pub(super) fn store_settings(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "bindAddress=127.0.0.1\n\
         storePathRootDir={folder}/store\n\
         storePathCommitLog={folder}/store/commitlog\n\
         mappedFileSizeCommitLog=67108864\n\
         mappedFileSizeConsumeQueue=60000\n\
         maxIndexNum=2000\n\
         maxHashSlotNum=500\n\
         maxMessageSize=4194304\n\
         diskMaxUsedSpaceRatio=98\n\
         waitTimeMillsInSendQueue=10000\n\
         timerWheelEnable=false\n\
         registerNameServerPeriod=10000\n\
         defaultTopicQueueNums=4\n"
    )
}
