#!lua flags=allow-oom
-- Writes the heartbeat of a node, and reads those of the others.
--
-- KEYS[1]  store: hash with the generation
-- KEYS[2]  nodes: hash, instance -> status of the node
-- KEYS[3]  alive: sorted set, instance -> until when it counts as alive, in microseconds of the store's time
-- ARGV     generation, the store's time in microseconds, until when this node is alive, its instance, "new" or "again", its
--          status: version of the scripts 2, name 1 + n, and more
-- result   the server's time in seconds and microseconds; "" or why it is refused: "v" and the status of the node whose
--          scripts are of another version, "n" if another has come with its name; then instance and status of every node
local call = redis.call
local generation, tick, alive_until, me, kind, status = unpack(ARGV)
if call('HGET', KEYS[1], 'generation') ~= generation then
  return redis.error_reply('DULYGONE the data of this store was removed from Redis')
end
local function name(of) return of:sub(4, 3 + of:byte(3)) end

local expired, others = call('ZRANGEBYSCORE', KEYS[3], '-inf', tick), {}
local is_expired = {}
for _, instance in ipairs(expired) do is_expired[instance] = true end
local known = call('HGETALL', KEYS[2])
local refused = ''
for i = 1, #known, 2 do
  local instance, other = known[i], known[i + 1]
  if instance ~= me and not is_expired[instance] then
    if name(other) == name(status) and kind == 'new' then
      -- The node was started again, so the one before it has ended.
      expired[#expired + 1] = instance
    elseif name(other) == name(status) then
      refused = 'n'
    elseif other:sub(1, 2) ~= status:sub(1, 2) and kind == 'new' then
      refused = 'v' .. other
    else
      others[#others + 1] = instance
      others[#others + 1] = other
    end
  end
end

local time = call('TIME')
if refused ~= '' then return { time[1], time[2], refused } end
if #expired > 0 then
  call('ZREM', KEYS[3], unpack(expired))
  call('HDEL', KEYS[2], unpack(expired))
end
call('ZADD', KEYS[3], alive_until, me)
call('HSET', KEYS[2], me, status)
return { time[1], time[2], '', me, status, unpack(others) }
