#!lua flags=allow-oom
-- Removes a node that stops: its shard leases are free for others at once.
--
-- KEYS[1]  nodes, as in join.lua
-- KEYS[2]  alive
-- ARGV     its instance
-- result   1 if it was there, else 0
redis.call('HDEL', KEYS[1], ARGV[1])
return redis.call('ZREM', KEYS[2], ARGV[1])
