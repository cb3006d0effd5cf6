#!lua flags=allow-oom
-- Renews the lease, if the lock is still that owner's.
--
-- KEYS[1]  the lock
-- ARGV[1]  "<token> <owner>"
-- ARGV[2]  the lease, milliseconds
-- result   1 done, 0 lost
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
