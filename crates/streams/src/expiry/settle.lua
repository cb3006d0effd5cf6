-- Settles a claim: done, retry, or dead timer. A claim that was lost, and a timer that was set again meanwhile, are left alone.
--
-- KEYS     as in dead.lua
-- ARGV[1]  the id of the claim
-- ARGV[2]  the key
-- ARGV[3]  "" if it is done, milliseconds until it is due again, or "dead"
-- ARGV[4]  the reason    ARGV[5]  'keep' or 'drop' dead timers    ARGV[6]  the most dead timers, or ''
-- result   1 settled, 0 lost
local attempts, due, claim = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '', '^(%d+) (%d+) (.*)$')
if claim ~= ARGV[1] then return 0 end
if ARGV[3] == '' then
  forget(ARGV[2])
elseif ARGV[3] == 'dead' then
  add_dead(ARGV[2], attempts, due, ARGV[4], ARGV[5], ARGV[6])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms() + tonumber(ARGV[3])), ARGV[2])
  redis.call('HSET', KEYS[3], ARGV[2], attempts .. ' ' .. due .. ' -')
end
return 1
