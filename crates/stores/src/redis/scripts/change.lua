#!lua flags=allow-oom
-- Cancels, moves or expires what is pending, replays or purges what is dead.
--
-- KEYS    as in prelude.lua
-- ARGV    what: "cancel", "reschedule", "expire", "replay" or "purge"; then id and due time (6 bytes: the new one if moved, the one
--         that it must still have if expired, else ""), in pairs, no id twice
-- result  per pair: "d" done and whether it may have been delivered (1 byte); "t" too late and its state (1 byte);
--         "u" unknown; "g" and the id: it cannot be read, and nothing is changed
local IN_FLIGHT, EXPIRED = 1, 2
local what = ARGV[FIRST]
local wanted = (what == 'replay' or what == 'purge') and DEAD or PENDING
local ids = {}
for i = FIRST + 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local packed = call('HMGET', msg, unpack(ids))
local claims = call('HMGET', claim, unpack(ids))
local answers = {}

local change = {}
function change.cancel(m)
  take(m)
  finished(m, CANCELLED)
  increment(counts, '#cancelled', 1)
end
function change.reschedule(m, due)
  take(m)
  m.due, m.ready = due, due
  put(m)
end
function change.expire(m)
  take(m)
  m.state, m.ended, m.reason = DEAD, now, EXPIRED
  add('ZADD', dead, 0, m.due .. m.id)
  add('HSET', msg, m.id, close(m))
  increment(counts, '#dead', 1)
  increment(counts, 'd' .. m.lane, 1)
end
local function leave_the_dead(m)
  remove('ZREM', dead, m.due .. m.id)
  increment(counts, '#dead', -1)
  increment(counts, 'd' .. m.lane, -1)
end
function change.replay(m)
  leave_the_dead(m)
  for field, value in pairs(NO_LIFE) do m[field] = value end
  m.due, m.ready, m.lost = six(now), six(now), 0
  put(m)
end
function change.purge(m)
  leave_the_dead(m)
  remove('HDEL', msg, m.id)
  increment(counts, '#purged', 1)
end

for i, id in ipairs(ids) do
  local m = packed[i] and open(id, packed[i])
  if not packed[i] then
    answers[i] = 'u'
  elseif not m then
    answers[i] = 'g' .. id
  elseif m.state ~= wanted or claims[i] then
    answers[i] = 't' .. char(claims[i] and IN_FLIGHT or m.state)
  elseif what == 'expire' and m.due ~= ARGV[FIRST + 2 * i] or what == 'replay' and m.reason == DAMAGED then
    answers[i] = 't' .. char(m.state)
  else
    change[what](m, ARGV[FIRST + 2 * i])
    answers[i] = 'd' .. char(m.maybe)
  end
end

finish(2 * #ids + 32)
return answers
