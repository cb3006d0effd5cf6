#!lua flags=allow-oom
-- Takes the right to have the store open, or keeps it.
--
-- KEYS    1 the key of the node
-- ARGV    1 who, 2 for how many ms
-- result  who has it now
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
