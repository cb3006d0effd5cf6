#!lua flags=allow-oom
-- Acquires and releases shard leases: which node delivers a lane from this shard.
--
-- KEYS    as in prelude.lua
-- ARGV    the instance of this node, how many nodes are there, their instances; then lane and whether this node is to have
--         it (1 or 0), in pairs
-- result  per pair: the fencing token by which this node has it now, or ""
local me, there = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
local alive, answers = {}, {}
for i = FIRST + 2, FIRST + 1 + there do alive[ARGV[i]] = true end

for i = FIRST + 2 + there, #ARGV, 2 do
  local lane, wanted = ARGV[i], ARGV[i + 1] == '1'
  local held = call('HGET', owner, lane)
  -- Bytes that are no shard lease are nobody's.
  local holder = held and #held == 16 and held:sub(1, 8)
  local answer = ''
  if holder == me then
    -- Deliveries in flight use the old shard lease, which stays until they end.
    if wanted or tonumber(call('HGET', count, 'f' .. lane) or 0) > 0 then
      answer = string.format('%.0f', (unpacked('>I8', held, 9)))
    else
      remove('HDEL', owner, lane)
    end
  elseif wanted and not (holder and alive[holder]) then
    local token = next_token()
    add('HSET', owner, lane, me .. pack('>I8', token))
    answer = string.format('%.0f', token)
  end
  answers[#answers + 1] = answer
end

finish(0)
return answers
