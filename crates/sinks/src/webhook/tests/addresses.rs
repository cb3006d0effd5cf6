//! Every range that is not public, its first and last address and their neighbours.

use std::net::IpAddr;

use crate::webhook::address::{AddressRule, Network, reserved};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// First and last address, and whether the addresses just outside are public.
const V4: &[(&str, &str, bool, bool)] = &[
    ("0.0.0.0", "0.255.255.255", false, true),
    ("10.0.0.0", "10.255.255.255", true, true),
    ("100.64.0.0", "100.127.255.255", true, true),
    ("127.0.0.0", "127.255.255.255", true, true),
    ("168.63.129.16", "168.63.129.16", true, true),
    ("169.254.0.0", "169.254.255.255", true, true),
    ("172.16.0.0", "172.31.255.255", true, true),
    ("192.0.0.0", "192.0.0.255", true, true),
    ("192.0.2.0", "192.0.2.255", true, true),
    ("192.88.99.0", "192.88.99.255", true, true),
    ("192.168.0.0", "192.168.255.255", true, true),
    ("198.18.0.0", "198.19.255.255", true, true),
    ("198.51.100.0", "198.51.100.255", true, true),
    ("203.0.113.0", "203.0.113.255", true, true),
    // Multicast, and behind it what is reserved, up to the broadcast address.
    ("224.0.0.0", "255.255.255.255", true, false),
];

const V6: &[(&str, &str, bool, bool)] = &[
    // Unspecified, loopback, IPv4-compatible, IPv4-mapped, NAT64, discarded, and what nobody was given.
    ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, true),
    // Reserved for protocols, Teredo among them.
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    // What nobody was given, unique local, link-local, site-local, multicast.
    ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true, false),
];

fn next(address: IpAddr, by: i8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add_signed(by.into()).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(v6) => v6.to_bits().checked_add_signed(by.into()).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[test]
fn every_range_is_refused_from_its_first_to_its_last_address_and_no_further() {
    for (first, last, before, after) in V4.iter().chain(V6) {
        let (first, last) = (ip(first), ip(last));
        for inside in [Some(first), next(first, 1), next(last, -1), Some(last)].into_iter().flatten() {
            let is_inside = first <= inside && inside <= last;
            assert!(!is_inside || reserved(inside).is_some(), "{inside} is refused");
        }
        for (outside, is_public) in [(next(first, -1), before), (next(last, 1), after)] {
            let Some(outside) = outside else {
                assert!(!is_public, "there is nothing beyond the last address");
                continue;
            };
            assert_eq!(reserved(outside).is_none(), *is_public, "{outside}, beside {first} to {last}");
        }
    }
}

#[test]
fn a_refusal_says_what_the_address_is() {
    for (address, name) in [
        ("0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("100.100.100.200", "shared between carriers"),
        ("169.254.169.254", "link-local"),
        ("168.63.129.16", "metadata service"),
        ("239.1.1.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::8.8.8.8", "IPv4-compatible"),
        ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("64:ff9b::10.0.0.1", "NAT64"),
        ("64:ff9b:1::1", "NAT64"),
        ("2001:0:4136:e378::1", "Teredo"),
        ("2002:7f00:1::", "6to4"),
        ("fd00:ec2::254", "unique local"),
        ("fe80::1", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("4000::1", "not public unicast"),
    ] {
        assert_eq!(reserved(ip(address)), Some(name), "{address}");
    }
    for public in ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"] {
        assert_eq!(reserved(ip(public)), None, "{public}");
    }
}

#[test]
fn named_networks_are_allowed_and_their_neighbours_are_not() {
    let networks = ["10.1.0.0/16", "fd00::/8", "127.0.0.1", "64:ff9b::/96"];
    let rule = AddressRule::PublicAnd(networks.map(|text| Network::parse(text).unwrap()).to_vec());
    for good in [
        "10.1.0.0",
        "10.1.255.255",
        "fd00::1",
        "127.0.0.1",
        "8.8.8.8",
        "64:ff9b::8.8.8.8",
        "64:ff9b::10.1.2.3",
    ] {
        assert_eq!(rule.check(ip(good)), Ok(()), "{good}");
    }
    for bad in ["10.0.255.255", "10.2.0.0", "fc00::1", "127.0.0.2", "::1", "::ffff:10.1.0.1"] {
        assert!(rule.check(ip(bad)).is_err(), "{bad}");
    }
    // The way through a translator is allowed here, but not to everywhere.
    assert_eq!(rule.check(ip("64:ff9b::192.168.0.1")), Err("private"));
    assert_eq!(AddressRule::Any.check(ip("169.254.169.254")), Ok(()));
    let everywhere = AddressRule::PublicAnd(vec![Network::parse("::/0").unwrap()]);
    assert_eq!(everywhere.check(ip("2002:7f00:1::")), Err("loopback"));
    assert_eq!(everywhere.check(ip("::ffff:10.0.0.1")), Err("private"));
}

#[test]
fn a_network_that_says_something_else_than_meant_is_refused() {
    for bad in [
        "",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.1/8",
        "10.0.0/8",
        "fd00::/129",
        "example.com/8",
        "10.0.0.0/8 ",
    ] {
        assert!(Network::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(format!("{:?}", Network::parse("10.0.0.0/8").unwrap()), "10.0.0.0/8");
    assert_eq!(format!("{:?}", Network::parse("fd00::/8").unwrap()), "fd00::/8");
}
