//! Limits of connections, in total and per address.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{auth::is_loopback, config::HttpLimits};

/// Prefix length of an IPv6 network of one site, which chooses the rest freely.
const NETWORK_BITS: u32 = 64;

/// Connections reserved for loopback, so that an operator gets in when all others are taken.
const LOCAL_MAX: usize = 8;

/// Counts connections against their limits.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    all: Arc<Semaphore>,
    local: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    per_address: usize,
}

/// One counted connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    _of_address: Option<AddressPermit>,
}

impl ConnectionLimits {
    pub(super) fn new(limits: &HttpLimits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.connections)),
            local: Arc::new(Semaphore::new(LOCAL_MAX)),
            addresses: Arc::default(),
            per_address: limits.connections_per_address,
        }
    }

    /// Counts a connection from this address, or returns the limit that is reached. Loopback may be a proxy with many clients, so it is
    /// not limited as one address.
    pub(super) fn enter(&self, from: IpAddr) -> Result<ConnectionPermit, &'static str> {
        let is_local = is_loopback(from);
        let of_address = if is_local {
            None
        } else {
            let place = self.addresses.enter(from, self.per_address);
            Some(place.ok_or("limits.connections_per_address")?)
        };
        let permit = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let permit = permit(&self.all).or_else(|| permit(&self.local).filter(|_| is_local));
        let permit = permit.ok_or("limits.connections")?;
        Ok(ConnectionPermit { _permit: permit, _of_address: of_address })
    }
}

/// The connections of each address.
#[derive(Debug, Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

impl Addresses {
    /// Counts one more connection of this address, unless it has `max` already.
    fn enter(self: &Arc<Self>, address: IpAddr, max: usize) -> Option<AddressPermit> {
        let address = counted_as(address);
        let mut counts = self.lock();
        let count = counts.entry(address).or_insert(0);
        if *count >= max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(AddressPermit { addresses: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One counted connection of an address, released on drop.
#[derive(Debug)]
struct AddressPermit {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.addresses.lock().entry(self.address) {
            *count.get_mut() -= 1;
            // Keep only addresses that have connections.
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) if v6.is_loopback() => IpAddr::V6(v6),
        IpAddr::V6(v6) => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_its_own_places_and_is_forgotten_without_any() {
        let addresses = Arc::new(Addresses::default());
        let (one, two) = (addresses.enter(ip("10.0.0.1"), 2), addresses.enter(ip("::ffff:10.0.0.1"), 2));
        assert!(one.is_some() && two.is_some());
        assert!(addresses.enter(ip("10.0.0.1"), 2).is_none());
        assert!(addresses.enter(ip("10.0.0.2"), 2).is_some());
        drop(one);
        assert!(addresses.enter(ip("10.0.0.1"), 2).is_some());
        drop(two);
        assert!(addresses.lock().is_empty());
    }

    #[test]
    fn whoever_may_choose_among_addresses_gains_nothing_by_it() {
        let addresses = Arc::new(Addresses::default());
        let held = addresses.enter(ip("2001:db8:1:2::1"), 1);
        assert!(addresses.enter(ip("2001:db8:1:2:ffff::9"), 1).is_none());
        assert!(addresses.enter(ip("2001:db8:1:3::1"), 1).is_some());
        drop(held);
    }

    #[test]
    fn loopback_is_no_single_address_and_has_places_of_its_own() {
        let limits = HttpLimits { connections: 4, connections_per_address: 2, ..HttpLimits::default() };
        let places = ConnectionLimits::new(&limits);
        let fill = |from: &str| std::iter::from_fn(|| places.enter(ip(from)).ok()).collect::<Vec<_>>();
        let why = |from: &str| places.enter(ip(from)).unwrap_err();
        let far = fill("10.0.0.1");
        assert_eq!((far.len(), why("10.0.0.1").contains("per_address")), (2, true));
        // A proxy of this machine has as many as there are.
        let mut local = fill("127.0.0.1");
        assert_eq!(local.len(), 2 + LOCAL_MAX);
        for from in ["127.0.0.1", "::1", "10.0.0.2"] {
            assert_eq!(why(from), "limits.connections");
        }
        local.truncate(2);
        assert_eq!(why("10.0.0.2"), "limits.connections", "those are not for others");
        assert!(places.enter(ip("::1")).is_ok());
        drop(far);
        assert!(places.enter(ip("10.0.0.2")).is_ok());
    }
}
