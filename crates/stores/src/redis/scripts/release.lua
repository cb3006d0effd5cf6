#!lua flags=allow-oom
-- Lets go of the right to have the store open.
--
-- KEYS    1 the key of the node
-- ARGV    1 who
-- result  1 if it had it, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
