-- Claims what is due, for as long as a lease. Whoever is claimed and not done by then is due again.
--
-- KEYS     as in dead.lua; KEYS[5] the last claims of this process
-- ARGV[1]  how many at most
-- ARGV[2]  the lease, milliseconds
-- ARGV[3]  the name of these claims, which no other has: asked for twice, they are counted once and answered alike
-- ARGV[4]  the most tries, 0 for no limit    ARGV[5]  'keep' or 'drop' what is given up    ARGV[6]  the most dead timers, or ''
-- result   milliseconds until the next is due, -1 if there is none; how many were given up, as nobody was heard of after their last try;
--          then per claimed one: key, value, its tries with this one, when it was due
local now, most = now_ms(), tonumber(ARGV[4])
local answer, names = {-1, 0}, {}
local function claim(key, is_counted)
  local value = redis.call('HGET', KEYS[2], key)
  local tries, due, claim = string.match(redis.call('HGET', KEYS[3], key) or '', '^(%d+) (%d+) (.*)$')
  if not value or not tries then
    -- Somebody has taken it apart by hand.
    redis.call('ZREM', KEYS[1], key)
    return
  end
  if is_counted and claim ~= ARGV[3] then
    return
  end
  if not is_counted then
    if most > 0 and tonumber(tries) >= most then
      local reason = 'nothing was heard of whoever handled it, at the last of its ' .. tries .. ' tries'
      add_dead(key, tries, due, reason, ARGV[5], ARGV[6])
      answer[2] = answer[2] + 1
      return
    end
    tries = tries + 1
    redis.call('HSET', KEYS[3], key, string.format('%d %s %s', tries, due, ARGV[3]))
  end
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), key)
  names[#names + 1] = key
  for _, part in ipairs({key, value, tonumber(tries), tonumber(due)}) do answer[#answer + 1] = part end
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
if next then answer[1] = math.max(0, tonumber(next) - now) end
return answer
