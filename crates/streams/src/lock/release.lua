#!lua flags=allow-oom
-- Releases a lock, if it is still that owner's.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- result   1 done, 0 lost
local held = redis.call('GET', KEYS[1])
if not held or string.match(held, '^%d+ (.*)$') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
