#!lua flags=allow-oom
-- Gives a lock back, if it is still that owner's; whoever has it since keeps it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- result   1 done, 0 it was not his any more
local held = redis.call('GET', KEYS[1])
if not held or string.match(held, '^%d+ (.*)$') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
