#!lua flags=allow-oom
-- Says that a node is there, and asks who else is.
--
-- KEYS[1]  store: hash with the generation
-- KEYS[2]  nodes: hash, instance -> what the node tells of itself
-- KEYS[3]  alive: sorted set, instance -> until when it is taken to be there, in microseconds of the store's time
-- ARGV     generation, the store's time in microseconds, until when this node is there, its instance, "new" or "again", what it
--          tells: version of the scripts 2, name 1 + n, and more
-- result   the server's time in seconds and microseconds; "" or why it may not be there: "v" and what the other tells whose
--          scripts are of another version, "n" if another has come with its name; then instance and what it tells of every node
local call = redis.call
local generation, tick, life_end, me, how, told = unpack(ARGV)
if call('HGET', KEYS[1], 'generation') ~= generation then
  return redis.error_reply('DULYGONE the data of this store was removed from Redis')
end
local function name(text) return text:sub(4, 3 + text:byte(3)) end

local gone, others = call('ZRANGEBYSCORE', KEYS[3], '-inf', tick), {}
local left = {}
for _, instance in ipairs(gone) do left[instance] = true end
local known = call('HGETALL', KEYS[2])
local refused = ''
for i = 1, #known, 2 do
  local instance, text = known[i], known[i + 1]
  if instance ~= me and not left[instance] then
    if name(text) == name(told) and how == 'new' then
      -- The node was started again, so the one before it has ended.
      gone[#gone + 1] = instance
    elseif name(text) == name(told) then
      refused = 'n'
    elseif text:sub(1, 2) ~= told:sub(1, 2) and how == 'new' then
      refused = 'v' .. text
    else
      others[#others + 1] = instance
      others[#others + 1] = text
    end
  end
end

local time = call('TIME')
if refused ~= '' then return { time[1], time[2], refused } end
if #gone > 0 then
  call('ZREM', KEYS[3], unpack(gone))
  call('HDEL', KEYS[2], unpack(gone))
end
call('ZADD', KEYS[3], life_end, me)
call('HSET', KEYS[2], me, told)
return { time[1], time[2], '', me, told, unpack(others) }
