//! Which addresses a request may go to.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    bits: u128,
    prefix: u32,
    width: u32,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u32) -> Self {
        Self { bits: Ipv4Addr::new(a, b, c, d).to_bits() as u128, prefix, width: 32 }
    }

    const fn v6(bits: u128, prefix: u32) -> Self {
        Self { bits, prefix, width: 128 }
    }

    /// Reads `10.0.0.0/8` or `fd00::/8`; a bare address is a network of one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("{text:?} is not a network; write 10.0.0.0/8 or fd00::/8"))?;
        let (bits, width) = parts(address);
        let prefix = match prefix {
            None => width,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= width)
                .ok_or_else(|| format!("{text:?}: the number after the slash is 0 to {width}"))?,
        };
        let network = Self { bits, prefix, width };
        if bits & !network.mask() != 0 {
            return Err(format!(
                "{text:?} has bits set behind its first {prefix}; write the network's first address"
            ));
        }
        Ok(network)
    }

    /// The leading bits set, of as many as the address has.
    const fn mask(&self) -> u128 {
        let all = if self.width == 128 { u128::MAX } else { (1 << self.width) - 1 };
        let free = self.width - self.prefix;
        if free == 128 { 0 } else { all >> free << free }
    }

    pub(super) const fn contains(&self, bits: u128, width: u32) -> bool {
        self.width == width && bits & self.mask() == self.bits
    }

    fn has(&self, address: IpAddr) -> bool {
        let (bits, width) = parts(address);
        self.contains(bits, width)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.bits) {
            Ok(bits) if self.width == 32 => write!(f, "{}/{}", Ipv4Addr::from_bits(bits), self.prefix),
            _ => write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), self.prefix),
        }
    }
}

fn parts(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

/// What is not a public unicast address, after the special-purpose registries of IANA. The first that matches gives
/// its name.
const RESERVED: &[(Network, &str)] = &[
    (Network::v4(0, 0, 0, 0, 8), "unspecified"),
    (Network::v4(10, 0, 0, 0, 8), "private"),
    (Network::v4(100, 64, 0, 0, 10), "shared between carriers"),
    (Network::v4(127, 0, 0, 0, 8), "loopback"),
    (Network::v4(169, 254, 0, 0, 16), "link-local"),
    (Network::v4(172, 16, 0, 0, 12), "private"),
    (Network::v4(192, 0, 0, 0, 24), "reserved for protocols"),
    (Network::v4(192, 0, 2, 0, 24), "documentation"),
    (Network::v4(192, 88, 99, 0, 24), "6to4 relay"),
    (Network::v4(192, 168, 0, 0, 16), "private"),
    (Network::v4(198, 18, 0, 0, 15), "benchmarking"),
    (Network::v4(198, 51, 100, 0, 24), "documentation"),
    (Network::v4(203, 0, 113, 0, 24), "documentation"),
    (Network::v4(224, 0, 0, 0, 4), "multicast"),
    (Network::v4(240, 0, 0, 0, 4), "reserved"),
    // Azure serves its machines' metadata from an address that looks public.
    (Network::v4(168, 63, 129, 16, 32), "metadata service"),
    (Network::v6(0, 128), "unspecified"),
    (Network::v6(1, 128), "loopback"),
    (Network::v6(0, 96), "IPv4-compatible"),
    (MAPPED, "IPv4-mapped"),
    (NAT64, "NAT64"),
    (Network::v6(0x0064_ff9b_0001 << 80, 48), "NAT64"),
    (Network::v6(0x0100 << 112, 64), "discarded"),
    (Network::v6(0x2001 << 112, 32), "Teredo"),
    (Network::v6(0x2001 << 112, 23), "reserved for protocols"),
    (Network::v6(0x2001_0db8 << 96, 32), "documentation"),
    (SIX_TO_FOUR, "6to4"),
    (Network::v6(0x3fff << 112, 20), "documentation"),
    (Network::v6(0x5f00 << 112, 16), "segment routing"),
    (Network::v6(0xfc00 << 112, 7), "unique local"),
    (Network::v6(0xfe80 << 112, 10), "link-local"),
    (Network::v6(0xfec0 << 112, 10), "site-local"),
    (Network::v6(0xff00 << 112, 8), "multicast"),
];

const MAPPED: Network = Network::v6(0xffff << 32, 96);
const NAT64: Network = Network::v6(0x0064_ff9b << 96, 96);
const SIX_TO_FOUR: Network = Network::v6(0x2002 << 112, 16);
/// All that is given out as public unicast; the rest of IPv6 is not, whatever it may become.
const UNICAST: Network = Network::v6(0x2000 << 112, 3);

/// Why `address` is not public, if it is not.
pub(super) fn reserved(address: IpAddr) -> Option<&'static str> {
    let named = RESERVED.iter().find(|(network, _)| network.has(address)).map(|(_, name)| *name);
    named.or_else(|| (address.is_ipv6() && !UNICAST.has(address)).then_some("not public unicast"))
}

/// The IPv4 address that a translating IPv6 address stands for.
fn inside(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let shift = match address {
        _ if MAPPED.has(address) || NAT64.has(address) => 0,
        _ if SIX_TO_FOUR.has(address) => 80,
        _ => return None,
    };
    let bits = (v6.to_bits() >> shift) & u128::from(u32::MAX);
    u32::try_from(bits).ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
}

/// Which addresses may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AddressRule {
    /// Every one.
    Any,
    /// Public ones, and those in these networks.
    PublicAnd(Vec<Network>),
}

impl AddressRule {
    /// Refuses an address with the reason.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        let Self::PublicAnd(allowed) = self else { return Ok(()) };
        let is_allowed = |address: IpAddr| allowed.iter().any(|network| network.has(address));
        match reserved(address) {
            Some(name) if !is_allowed(address) => return Err(name),
            _ => {}
        }
        // Allowing the translator does not allow what lies behind it.
        match inside(address) {
            Some(v4) if !is_allowed(v4) => reserved(v4).map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }
}
