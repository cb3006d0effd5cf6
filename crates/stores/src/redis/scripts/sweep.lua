#!lua flags=allow-oom
-- The sweep, in bounded steps: ends leases that ran out, forgets what is past retention, returns what comes next.
--
-- KEYS    as in prelude.lua
-- ARGV    how many leases to end at most, how many of the soonest lanes to name, how many messages are withheld; the ids of those: their
--         leases are not ended; then, if no lanes are to be named, the lanes asked for
-- result  how many leases ended, when the next one ends ("" if none), how many are pending, how many in flight; how many lanes this node
--         owns here, how many messages could not be read and are dead letters now; lane and fencing token of each lane, in pairs; the
--         ids of those messages; then the
--         ready times of the lanes asked for ("" if nothing waits), or lane and ready time of the soonest ones, in pairs
-- A key of another type, which something else wrote, fails most scripts and not all: the sweep names it until it is removed.
local TYPES = {
  'hash', 'hash', 'zset', 'zset', 'hash', 'zset', 'zset', 'zset', 'zset', 'hash', 'hash', 'hash', 'hash',
}
for i, kind in ipairs(TYPES) do
  local found = call('TYPE', KEYS[i]).ok
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. found .. ' and not a ' .. kind)
  end
end

local leases_max, soonest_max = tonumber(ARGV[FIRST]), tonumber(ARGV[FIRST + 1])
local withheld, withheld_count = {}, tonumber(ARGV[FIRST + 2])
local LANES = FIRST + 3 + withheld_count
for i = FIRST + 3, LANES - 1 do withheld[ARGV[i]] = true end
-- Those that are withheld take no places of others.
local ids, aside = {}, {}
for _, id in ipairs(call('ZRANGEBYSCORE', lease, '-inf', ARGV[3], 'LIMIT', 0, leases_max + withheld_count)) do
  if #ids < leases_max and not withheld[id] then ids[#ids + 1] = id end
end
if #ids > 0 then
  local packed, claims = call('HMGET', msg, unpack(ids)), call('HMGET', claim, unpack(ids))
  for i, id in ipairs(ids) do
    local m = open_claimed(id, packed[i], claims[i])
    if m then
      lose_lease(m, claims[i], 'the lease ran out')
    elseif packed[i] or claims[i] then
      set_aside_claimed(id, claims[i], packed[i], 1)
      aside[#aside + 1] = id
    else
      remove('ZREM', lease, id)
    end
  end
end
finish(512)

local next_end = call('ZRANGEBYSCORE', lease, '(' .. ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local held = call('HMGET', count, '#pending', '#in_flight')
local answers = {
  tostring(#ids), next_end and string.format('%.0f', next_end) or '', held[1] or '0', held[2] or '0',
}
-- What a node takes itself to own and what is written may differ, where Redis lost its last second.
local me, owners, mine = ARGV[8]:sub(1, 8), call('HGETALL', owner), {}
for i = 1, #owners, 2 do
  if #owners[i + 1] == 16 and owners[i + 1]:sub(1, 8) == me then
    mine[#mine + 1], mine[#mine + 2] = owners[i], string.format('%.0f', (unpacked('>I8', owners[i + 1], 9)))
  end
end
answers[5], answers[6] = tostring(#mine / 2), tostring(#aside)
for _, text in ipairs(mine) do answers[#answers + 1] = text end
for _, id in ipairs(aside) do answers[#answers + 1] = id end
if soonest_max > 0 then
  for _, text in ipairs(call('ZRANGE', soonest, 0, soonest_max - 1, 'WITHSCORES')) do answers[#answers + 1] = text end
elseif #ARGV >= LANES then
  for _, score in ipairs(call('ZMSCORE', soonest, unpack(ARGV, LANES))) do
    answers[#answers + 1] = score or ''
  end
end
return answers
