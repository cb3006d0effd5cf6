-- Claims due timers for the time of a lease. A timer that is not settled by then is due again.
--
-- KEYS     as in dead.lua; KEYS[5] the last claims of this process
-- ARGV[1]  how many at attempts_max
-- ARGV[2]  the lease, milliseconds
-- ARGV[3]  the id of these claims, unique: a repeated call counts once and has the same reply
-- ARGV[4]  the attempts in all, 0 for no limit    ARGV[5]  'keep' or 'drop' dead timers    ARGV[6]  the most dead timers, or ''
-- result   milliseconds until the next is due, -1 if there is none; how many became dead timers, because their last
--          attempt was never settled; then per claimed timer: key, value, its attempts with this one, when it was due
local now, attempts_max = now_ms(), tonumber(ARGV[4])
local reply, names = {-1, 0}, {}
local function claim(key, is_counted)
  local value = redis.call('HGET', KEYS[2], key)
  local attempts, due, claim = string.match(redis.call('HGET', KEYS[3], key) or '', '^(%d+) (%d+) (.*)$')
  if not value or not attempts then
    -- Somebody removed a part of it by hand.
    redis.call('ZREM', KEYS[1], key)
    return
  end
  if is_counted and claim ~= ARGV[3] then
    return
  end
  if not is_counted then
    if attempts_max > 0 and tonumber(attempts) >= attempts_max then
      local reason = 'the process that handled it was lost in the last of its ' .. attempts .. ' attempts'
      add_dead(key, attempts, due, reason, ARGV[5], ARGV[6])
      reply[2] = reply[2] + 1
      return
    end
    attempts = attempts + 1
    redis.call('HSET', KEYS[3], key, string.format('%d %s %s', attempts, due, ARGV[3]))
  end
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), key)
  names[#names + 1] = key
  for _, part in ipairs({key, value, tonumber(attempts), tonumber(due)}) do reply[#reply + 1] = part end
end

local last = redis.call('GET', KEYS[5])
last = last and cmsgpack.unpack(last)
if last and last[1] == ARGV[3] then
  for _, key in ipairs(last[2]) do claim(key, true) end
else
  local keys = redis.call('ZRANGE', KEYS[1], '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, ARGV[1])
  for _, key in ipairs(keys) do claim(key, false) end
  if #names > 0 then
    redis.call('SET', KEYS[5], cmsgpack.pack({ARGV[3], names}), 'PX', ARGV[2])
  end
end
local next = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if next then reply[1] = math.max(0, tonumber(next) - now) end
return reply
