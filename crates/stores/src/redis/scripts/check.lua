#!lua
-- Whether Redis takes changes, and every key of the shards is what it should be. Of all shards at once, so not in a Cluster.
--
-- KEYS[1]  store: hash with the generation, written to
-- KEYS     from 2 on: the keys of the shards, one shard after the other, each in the order of prelude.lua
-- ARGV     how many keys a shard has
-- result   the number of each key that holds something of another type, counted from 0 behind KEYS[1]
local call = redis.call
local TYPES = {
  'hash', 'hash', 'zset', 'zset', 'hash', 'zset', 'zset', 'zset', 'zset', 'hash', 'hash', 'hash', 'hash',
}
local wrong, each = {}, tonumber(ARGV[1])
for i = 2, #KEYS do
  local found = call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= TYPES[(i - 2) % each + 1] then wrong[#wrong + 1] = tostring(i - 2) end
end
call('HSET', KEYS[1], 'checked', 1)
return wrong
