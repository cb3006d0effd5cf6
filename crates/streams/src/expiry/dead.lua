-- Makes a dead timer: adds it to the stream of dead timers and forgets it, in one step. For claim.lua and settle.lua, with these keys:
-- KEYS[1]  due     KEYS[2]  values    KEYS[3]  states, as in set.lua    KEYS[4]  the stream of dead timers
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function forget(key)
  redis.call('ZREM', KEYS[1], key)
  redis.call('HDEL', KEYS[2], key)
  redis.call('HDEL', KEYS[3], key)
end

-- `keep` is 'keep' or 'drop', `max_len` a length or ''.
local function add_dead(key, attempts, due, reason, keep, max_len)
  if keep == 'keep' then
    local entry = {KEYS[4]}
    if max_len ~= '' then
      entry[2], entry[3], entry[4] = 'MAXLEN', '~', max_len
    end
    local fields = {
      '*', 'key', key, 'body', redis.call('HGET', KEYS[2], key) or '', 'duly-due', due,
      'duly-dead-reason', reason, 'duly-dead-at', string.format('%.0f', now_ms()), 'duly-dead-attempts', attempts,
    }
    for i = 1, #fields do
      entry[#entry + 1] = fields[i]
    end
    redis.call('XADD', unpack(entry))
  end
  forget(key)
end
