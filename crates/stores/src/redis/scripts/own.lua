#!lua flags=allow-oom
-- Acquires and releases shard leases: which node delivers a lane from this shard.
--
-- KEYS    as in prelude.lua
-- ARGV    instance of this node, number of live nodes, their instances; then lane and whether this node wants it (1 or 0), in pairs
-- result  per pair: the fencing token of this node's lease, or "" if it has none
local instance, node_count = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
local alive, answers = {}, {}
for i = FIRST + 2, FIRST + 1 + node_count do alive[ARGV[i]] = true end

for i = FIRST + 2 + node_count, #ARGV, 2 do
  local lane, wanted = ARGV[i], ARGV[i + 1] == '1'
  local shard_lease = call('HGET', owner, lane)
  -- Anything but 16 bytes is not a shard lease.
  local holder = shard_lease and #shard_lease == 16 and shard_lease:sub(1, 8)
  local answer = ''
  if holder == instance then
    -- Deliveries in flight use the old shard lease, which stays until they end.
    if wanted or tonumber(call('HGET', count, 'f' .. lane) or 0) > 0 then
      answer = string.format('%.0f', (unpacked('>I8', shard_lease, 9)))
    else
      remove('HDEL', owner, lane)
    end
  elseif wanted and not (holder and alive[holder]) then
    local token = next_token()
    add('HSET', owner, lane, instance .. pack('>I8', token))
    answer = string.format('%.0f', token)
  end
  answers[#answers + 1] = answer
end

finish(0)
return answers
